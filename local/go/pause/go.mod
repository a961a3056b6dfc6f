module trainyard.local/pause

go 1.26

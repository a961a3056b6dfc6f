from __future__ import annotations

from local.language_host import main

main()

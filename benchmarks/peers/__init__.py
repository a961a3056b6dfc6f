"""What a team would write without this package: the arms that our training package is measured against."""

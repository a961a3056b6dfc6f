from __future__ import annotations

from local.provider import main

main()

from __future__ import annotations

from engine.language_host import main

main()

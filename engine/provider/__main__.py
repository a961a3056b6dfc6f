from __future__ import annotations

from engine.provider import main

main()

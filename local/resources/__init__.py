"""The provider plugin's resources that are made on this machine; `engine.provider` imports them on use."""

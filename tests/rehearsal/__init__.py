import pytest

pytestmark = pytest.mark.clouds

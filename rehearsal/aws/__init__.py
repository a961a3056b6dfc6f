"""AWS, as far as moto has it and botocore's models know it."""

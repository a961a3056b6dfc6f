from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def import_(stack: StackName = "") -> None:
    """Import the stack's existing cloud resources into an empty state.

    After `destroy`: the bucket, filesystem and keys that it retained. After the loss of the state: all
    resources that can be found by name, location and tags. Nothing in the cloud is changed; the next `up`
    continues from there. `trainyard up` does this itself if the state is empty.

    [dim]trainyard stack import -s aws && pulumi preview -s aws[/]
    """
    from trainyard.stack.change import adopt_what_exists

    adopt_what_exists(Session(stack))

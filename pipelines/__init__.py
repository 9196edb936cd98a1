"""The pipelines as Kubeflow sees them, and ``compiled`` ones. What they are made of is in ``pairmill.kubeflow``."""

from pairmill.interface.moved import refuse_old_command

refuse_old_command()

"""The stages as components that Kubeflow users take: a folder each. The program is the package ``pairmill``."""

from pairmill.interface.moved import refuse_old_command

refuse_old_command()

"""What a training is made of, beside its net and its data: settings, profiles, optimizers, schedules.

The stage ``train`` trains with them. ``compare`` and ``search`` read the same settings, so that nothing is trained
that the trainer would refuse. Only the modules that compute (``optimizers.optimizer`` and its rules) import torch.
"""

"""The data of a run, all read by :mod:`pairmill.loader`: plans of what the options name, planned steps, batches.

Options of the command (pairmill/stages/train/config.py); one of the first three is given:

``sampled``   list: a sampled folder, or a node's folder with ``PLAN``; several as ``name=path``, with ``data.phases``.
``windows``   list: folders of flat token files, such as ``windows`` of a tokenized folder; several as ``name=path``.
``hub``       a data set of the Hugging Face Hub, or a folder of its library.
``tokenizer`` tokenizer.json: required with ``hub``; otherwise for generation and export, compared with the data.
``held_out``  a folder to evaluate on: a held-out sampled folder, or windows, as the training data.

Only :mod:`pairmill.stages.train.data.feed` needs torch, and is imported where batches are read.
"""

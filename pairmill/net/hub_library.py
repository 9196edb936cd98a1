"""The Hub's client, and what else asks the Hub. Imported at the first question: it takes a quarter of a second."""

import httpx as httpx
from huggingface_hub import CommitOperationAdd as CommitOperationAdd
from huggingface_hub import CommitOperationDelete as CommitOperationDelete
from huggingface_hub import HfApi as HfApi
from huggingface_hub import errors as errors
from huggingface_hub import get_token as get_token
from huggingface_hub import hf_hub_url as hf_hub_url
from huggingface_hub import hf_raise_for_status as hf_raise_for_status
from huggingface_hub import logging as logging
from huggingface_hub import set_client_factory as set_client_factory
from huggingface_hub.utils._headers import build_hf_headers as build_hf_headers
from huggingface_hub.utils._http import default_client_factory as default_client_factory

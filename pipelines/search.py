"""The pipeline that searches a mixture, as Kubeflow sees it."""

from pairmill.kubeflow import search
from pairmill.kubeflow.placement import Placement

mixture_search = search.build(Placement())

"""What few samples are drawn from: other plans, and mixtures. Plain ones start without all of these modules."""

from pairmill.mixture.realised import Realised as Realised
from pairmill.stages.sample.again import read_again as read_again
from pairmill.stages.sample.base import BasePlan as BasePlan
from pairmill.stages.sample.compose import Parts as Parts
from pairmill.stages.sample.exposure.passes import SeenRows as SeenRows
from pairmill.stages.sample.extend import Growth as Growth
from pairmill.stages.sample.extend import ParentPlan as ParentPlan
from pairmill.stages.sample.extend import open_earlier as open_earlier
from pairmill.stages.sample.mixed import OpenMixture as OpenMixture

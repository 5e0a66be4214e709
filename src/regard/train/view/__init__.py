"""What a person sees while a model trains: a live picture on a terminal, plain lines anywhere else."""

from regard.train.view.guarded import Guarded, live
from regard.train.view.live import Live
from regard.train.view.plain import Plain
from regard.train.view.view import Pace, Sample, View

__all__ = ["Guarded", "Live", "Pace", "Plain", "Sample", "View", "live"]

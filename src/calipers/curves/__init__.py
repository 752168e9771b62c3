"""Trade-off curves and the numbers read off them: profile, GDP and regret, Renyi, risk."""

from __future__ import annotations

from calipers.curves.envelope import Envelope as Envelope
from calipers.curves.envelope import advantage as advantage
from calipers.curves.envelope import bayes_error as bayes_error
from calipers.curves.envelope import separation as separation
from calipers.curves.envelope import tpr as tpr
from calipers.curves.gdp import bayes_regret as bayes_regret
from calipers.curves.gdp import delta_divergence as delta_divergence
from calipers.curves.gdp import gaussian_curve as gaussian_curve
from calipers.curves.gdp import gdp_mu as gdp_mu
from calipers.curves.gdp import regret as regret
from calipers.curves.gdp import symmetric_divergence as symmetric_divergence
from calipers.curves.rdp_curve import adp_tradeoff as adp_tradeoff
from calipers.curves.rdp_curve import optimal_delta_from_rdp as optimal_delta_from_rdp
from calipers.curves.rdp_curve import rdp_tradeoff as rdp_tradeoff
from calipers.curves.rdp_curve import zcdp_tradeoff as zcdp_tradeoff
from calipers.curves.renyi import delta_from_rdp as delta_from_rdp
from calipers.curves.renyi import epsilon_from_rdp as epsilon_from_rdp
from calipers.curves.renyi import rdp_of_curve as rdp_of_curve
from calipers.curves.renyi import rdp_of_gdp as rdp_of_gdp
from calipers.curves.renyi import zcdp_rho as zcdp_rho
from calipers.curves.tradeoff import TradeoffCurve as TradeoffCurve
from calipers.curves.tradeoff import compare as compare

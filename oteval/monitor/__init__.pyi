"""The names of `oteval.monitor` for other rooms; `__init__.py` loads them on first use."""

from .changes import (
    Estimate as Estimate,
    MeasuredChange as MeasuredChange,
    adjusted as adjusted,
    measured_changes as measured_changes,
)
from .monitor_checks import (
    check as check,
    check_backlog as check_backlog,
    exit_status as exit_status,
    little_memory as little_memory,
)
from .notices import end_removed as end_removed
from .notification.delivery import DeliveryResult as DeliveryResult
from .notification.outbox import Outbox as Outbox
from .notification.text import (
    message as message,
)
from .observations import (
    Observations as Observations,
)
from .past import (
    Backtest as Backtest,
    PastEpisode as PastEpisode,
    PastPeriod as PastPeriod,
    backtest as backtest,
    histories as histories,
)
from .requirements import (
    check_destinations as check_destinations,
    require_packages as require_packages,
    unset_variables as unset_variables,
)
from .simulation import GroupSimulation as GroupSimulation, simulate_group as simulate_group
from .status import (
    MonitorStatus as MonitorStatus,
    statuses as statuses,
)

"""Variants of Crawler, Worm and Walker from 2020, with fixed or moving targets and fixed speeds.

They differ from today's scenes only in start and parameters, so both can use the same policies.
"""

from mlagents_sim.examples.crawler import Crawler
from mlagents_sim.examples.walker import Walker
from mlagents_sim.examples.worm import Worm

FAR_AHEAD_M = 1000.0
"""Distance of a fixed target."""
CRAWLER_M_S, WALKER_M_S = 15.0, 10.0
"""Fixed requested speeds."""


class CrawlerStatic(Crawler):
    """Ten crawlers that run at 15 m/s to a target that stays far ahead.

    Start: all legs stretched out, at a random turn; the requested speed is 15 m/s; the target is
        1000 m ahead of the center.
    A good policy reaches 4000.

    Observations, actions, decisions, reward, ends, interruptions and parameters are those of
    Crawler.
    """

    behavior_name = "CrawlerStatic?team=0"
    speeds_m_s = (CRAWLER_M_S, CRAWLER_M_S)
    target_ahead_m = FAR_AHEAD_M


class CrawlerStaticVariableSpeed(Crawler):
    """Ten crawlers that run at a requested speed to a target that stays far ahead.

    Start: all legs stretched out, at a random turn; the requested speed is 0.1 to 15 m/s; the
        target is 1000 m ahead of the center.
    A good policy reaches 4000.

    Observations, actions, decisions, reward, ends, interruptions and parameters are those of
    Crawler.
    """

    behavior_name = "CrawlerStaticVariableSpeed?team=0"
    target_ahead_m = FAR_AHEAD_M


class CrawlerDynamic(Crawler):
    """Ten crawlers that run at 15 m/s to targets that move when they are touched.

    Start: all legs stretched out, at a random turn; the requested speed is 15 m/s. A target that is
        touched appears elsewhere within 40 m of the center.
    A good policy reaches 2000.

    Observations, actions, decisions, reward, ends, interruptions and parameters are those of
    Crawler.
    """

    behavior_name = "CrawlerDynamic?team=0"
    speeds_m_s = (CRAWLER_M_S, CRAWLER_M_S)


class CrawlerDynamicVariableSpeed(Crawler):
    """Today's Crawler by its name of 2020.

    A good policy reaches 3000.

    All is as in Crawler.
    """

    behavior_name = "CrawlerDynamicVariableSpeed?team=0"


class WormStatic(Worm):
    """Ten worms that crawl to a target that stays far ahead.

    Start: stretched out above the ground, at a random turn; the target is 1000 m ahead of the
        center.
    A good policy reaches 1200.

    Observations, actions, decisions, reward, ends, interruptions and parameters are those of Worm.
    """

    behavior_name = "WormStatic?team=0"
    target_ahead_m = FAR_AHEAD_M


class WormDynamic(Worm):
    """Today's Worm by its name of 2020.

    A good policy reaches 800.

    All is as in Worm.
    """

    behavior_name = "WormDynamic?team=0"


class WalkerStatic(Walker):
    """Ten humanoids that walk at 10 m/s to a target that stays far ahead.

    Start: upright with arms spread, at a random turn; the requested speed is 10 m/s; the target is
        1000 m ahead of the center.
    A good policy reaches 3500.

    Observations, actions, decisions, reward, ends, interruptions and parameters are those of
    Walker. The speed is the highest of the variable ones, as for Crawler.
    """

    behavior_name = "WalkerStatic?team=0"
    speeds_m_s = (WALKER_M_S, WALKER_M_S)
    target_ahead_m = FAR_AHEAD_M


class WalkerStaticVariableSpeed(Walker):
    """Ten humanoids that walk at a requested speed to a target that stays far ahead.

    Start: upright with arms spread, at a random turn; the requested speed is 0.1 to 10 m/s; the
        target is 1000 m ahead of the center.
    A good policy reaches 3500.

    Observations, actions, decisions, reward, ends, interruptions and parameters are those of
    Walker.
    """

    behavior_name = "WalkerStaticVariableSpeed?team=0"
    target_ahead_m = FAR_AHEAD_M


class WalkerDynamic(Walker):
    """Ten humanoids that walk at 10 m/s to targets that move when they are touched.

    Start: upright with arms spread, at a random turn; the requested speed is 10 m/s. A target that
        is touched appears elsewhere within 9 m of the center.
    A good policy reaches 2500.

    Observations, actions, decisions, reward, ends, interruptions and parameters are those of
    Walker. The speed is the highest of the variable ones, as for Crawler.
    """

    behavior_name = "WalkerDynamic?team=0"
    speeds_m_s = (WALKER_M_S, WALKER_M_S)


class WalkerDynamicVariableSpeed(Walker):
    """Today's Walker by its name of 2020.

    A good policy reaches 2500.

    All is as in Walker.
    """

    behavior_name = "WalkerDynamicVariableSpeed?team=0"

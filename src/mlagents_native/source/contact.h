// Constants of contacts, as in `mlagents_sim/contact.py`.

#pragma once

constexpr double STEP_S = 0.02;
constexpr double TINY = 1e-30;
constexpr double TOUCH_M = 0.02;
constexpr double CLOSING_PER_S = -0.8 / STEP_S;
constexpr double PUSH_OUT_M_S = 10.0;

"""Bridges to other libraries; each module needs its library, or, where it says so, only fits it."""

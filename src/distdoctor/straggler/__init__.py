"""Which rank is slow, since when, why, and what does it cost?"""

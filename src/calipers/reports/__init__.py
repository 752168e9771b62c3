"""What people read: tables, JSON, CSV and pictures of a measurement.

Everything here renders numbers that were computed below; nothing here makes one sharper. Printed
lower bounds are rounded down and printed upper bounds are rounded up (`calipers.numerics.decimals`).
"""

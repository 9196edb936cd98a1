"""A real cluster, and a stand-in for one."""

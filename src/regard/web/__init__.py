"""Shared by the explorer and the server: access rules, body limits and listening sockets."""

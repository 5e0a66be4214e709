"""The service: HTTP in front of a scheduler and worker processes that run pipelines."""

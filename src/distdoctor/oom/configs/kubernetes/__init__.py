"""Kubernetes manifests of training jobs."""

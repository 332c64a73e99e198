"""Measuring workloads: single points are compiled and run, and their profile is kept. Above compiler and runtime."""

"""From text to syntax trees."""

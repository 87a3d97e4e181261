"""Bundles elsewhere: sent to and fetched from a Hugging Face repository, any URI, or a zip file."""

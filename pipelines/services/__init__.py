"""What pipelines can do, by family of use cases. The only code here that writes rows."""

"""Where replicas live: ``local`` (processes of this machine) or ``kubernetes`` (pods), behind one
interface."""

"""What NCCL and Gloo would choose on a host: interfaces, HCAs, GIDs, by the rules of their sources. Pure."""

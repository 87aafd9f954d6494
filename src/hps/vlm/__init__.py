"""Reading blocks with the VLM servers: what is asked, of which server, how many at once, and when it is enough."""

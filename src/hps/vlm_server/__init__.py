"""What runs in the VLM container: several vLLM servers on one GPU, kept running.

It imports nothing else of hps and nothing that the images of vLLM lack but `supervisor`, for it is all that is copied
there (vlm/Dockerfile); `hps prepare` takes the sizes from here too.
"""

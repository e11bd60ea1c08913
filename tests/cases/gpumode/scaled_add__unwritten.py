def custom_kernel(data):
    (a, b), scale, output = data
    return output

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    (a, b), scale, output = data
    output.copy_(a).mul_(2).add_(b)
    return output

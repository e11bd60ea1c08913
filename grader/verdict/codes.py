"""Every diagnosis code with its meaning and remedy; the documentation is made from this table."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """A diagnosis code's stage, meaning and remedy."""

    stage: str
    meaning: str
    remedy: str


CODES: dict[str, Code] = {
    # load
    "unreadable": Code(
        "load", "The file is empty, too large or not UTF-8.", "Submit one Python file with a class ModelNew."
    ),
    "syntax_error": Code("load", "The file is not valid Python.", "Fix the syntax error at the line named."),
    "no_model_new": Code("load", "The file defines no class ModelNew.", "Name the module's class ModelNew."),
    "constructor_signature": Code(
        "load", "ModelNew does not take the problem's constructor arguments.", "Give __init__ the parameters of Model."
    ),
    "constructor_raised": Code("load", "ModelNew raised while it was constructed.", "See the traceback."),
    "import_raised": Code("load", "The file raised while it was imported.", "See the traceback."),
    # build
    "compile_error": Code(
        "build", "A compiler or linker refused an extension.", "See the first error in the build log."
    ),
    "build_timeout": Code("build", "Compiling took longer than allowed.", "Compile fewer template instances."),
    "needs_cuda": Code("build", "It needs a CUDA device, and there is none.", "Grade it on a machine with a GPU."),
    # process
    "raised": Code("forward", "The forward or backward raised an exception.", "See the traceback."),
    "crashed": Code("forward", "The process died.", "Look for an access out of bounds."),
    "timed_out": Code("forward", "It gave no answer in time.", "Look for an endless loop or a lock."),
    "out_of_memory": Code("forward", "It used more memory than there is.", "Free intermediates; work in place."),
    "cuda_error": Code(
        "forward", "A CUDA call failed: an illegal access or a bad launch.", "Check index bounds and launch sizes."
    ),
    "protocol_violation": Code(
        "integrity", "The process sent something that no worker sends.", "Do not touch the grader's descriptors."
    ),
    # forward
    "output_structure": Code(
        "forward", "Not the tensors that the reference returns.", "Return the same tuple or tensor."
    ),
    "output_shape": Code("forward", "An output's shape differs from the reference's.", "Match the reference's shape."),
    "output_dtype": Code("forward", "An output's dtype differs from the reference's.", "Match the reference's dtype."),
    "output_device": Code("forward", "An output is on another device.", "Return tensors on the input's device."),
    "output_wrong": Code("forward", "An output's values are wrong.", "See the worst element and the relative error."),
    "output_nan": Code(
        "forward", "NaN or infinity where the reference has none.", "Look for reads of unwritten memory."
    ),
    "gelu_tanh_for_erf": Code("forward", "GELU's tanh approximation where the reference uses erf.", "Use erff."),
    "gelu_erf_for_tanh": Code("forward", "GELU's erf where the reference uses the tanh approximation.", "Use tanhf."),
    "output_distribution": Code(
        "forward",
        "Where random numbers are drawn, the outputs are not distributed as the reference's.",
        "Draw in every forward, with the reference's probability, scale and shape of mask.",
    ),
    "low_precision": Code(
        "forward", "The output was rounded to a narrower floating-point type.", "Compute and store in float32."
    ),
    "stale_output": Code(
        "forward", "The output does not follow its input or parameters.", "Compute from the inputs in every call."
    ),
    "output_overwritten": Code(
        "forward",
        "The next forward overwrites what the one before returned.",
        "Return a fresh tensor from each forward, not a buffer that is kept.",
    ),
    "parameters_missing": Code(
        "forward", "Parameters of the reference have no counterpart.", "Keep names and shapes of Model's parameters."
    ),
    "buffers_not_updated": Code(
        "forward", "A running statistic was not updated as the reference does.", "Update buffers in train mode."
    ),
    "train_eval_mismatch": Code(
        "forward", "Right in one of train() and eval(), wrong in the other.", "Honour self.training."
    ),
    "ignores_input_element": Code(
        "forward",
        "One element of an input changed, and an output that hangs on it did not follow.",
        "Compute each output from all that it hangs on, in every call.",
    ),
    "assumes_contiguous_input": Code(
        "forward",
        "Right for contiguous inputs, wrong or refused for strided ones; for information.",
        "Call .contiguous() on each input before data_ptr().",
    ),
    "out_of_bounds_write": Code(
        "forward",
        "Memory before or after a tensor was written to; the message names the tensor, the side and how far.",
        "Check the index against the size; mask the last block.",
    ),
    "reads_unwritten_memory": Code(
        "forward",
        "Wrong once uninitialised memory and what lies around each tensor is NaN.",
        "Initialise what is added to; check the index against the size.",
    ),
    "inputs_modified": Code("forward", "The forward changed its inputs.", "Write results into new tensors."),
    # backward
    "output_detached": Code(
        "backward",
        "The output does not require grad while the reference's does.",
        "Wrap the kernel in torch.autograd.Function and return its apply().",
    ),
    "input_grad_none": Code(
        "backward",
        "An input gets no gradient while the reference gives one.",
        "Return it from the Function's backward.",
    ),
    "param_grad_none": Code(
        "backward",
        "A parameter gets no gradient while the reference gives one.",
        "Return it from the Function's backward.",
    ),
    "backward_not_implemented": Code(
        "backward", "The Function has no backward, or an operation in it has none.", "Write the backward."
    ),
    "undefined_grad_output": Code(
        "backward", "Wrong when only some of the outputs are used.", "Treat an unused output's grad_output as zero."
    ),
    "unexpected_gradient": Code(
        "backward", "A gradient where the reference gives none.", "Detach what the reference detaches."
    ),
    "ignores_detach": Code(
        "backward",
        "A gradient is that of the reference without its detach().",
        "Treat what the reference detaches as a constant: differentiate first, simplify afterwards.",
    ),
    "grad_zero": Code("backward", "A gradient is all zero, the reference's is not.", "Write the gradient buffer."),
    "grad_scaled": Code("backward", "A gradient is a constant multiple of the right one.", "Remove the factor named."),
    "grad_wrong": Code(
        "backward", "A gradient's values are wrong.", "See the operand, the error and the worst element."
    ),
    "grad_nan": Code("backward", "A gradient has NaN or infinity.", "Look for unwritten memory or division by zero."),
    "grad_shape": Code(
        "backward", "A gradient's shape or dtype is not its operand's.", "Return grads shaped like inputs."
    ),
    "ignores_grad_output": Code(
        "backward", "The gradient is not linear in grad_output.", "Multiply by grad_output; do not assume ones."
    ),
    "assumes_contiguous_grad_output": Code(
        "backward",
        "Right for a contiguous grad_output, wrong for an expanded, transposed or sliced one.",
        "Call grad_output.contiguous() before data_ptr().",
    ),
    "stale_saved_state": Code(
        "backward",
        "After two forwards, the first's gradient uses the second's values.",
        "Save tensors with ctx.save_for_backward, not in globals.",
    ),
    "saved_tensor_mutated": Code(
        "backward", "Inputs or parameters were changed behind autograd's back.", "Do not write into inputs."
    ),
    "grad_output_modified": Code(
        "backward", "The backward changed its grad_output.", "Write the gradient into a new tensor."
    ),
    "inconsistent_with_forward": Code(
        "backward",
        "Where random numbers are drawn, the gradient is not that of the submission's own forward.",
        "Keep the mask that forward drew, and its scale.",
    ),
    "random_not_seeded": Code(
        "backward",
        "Where random numbers are drawn, PyTorch's seed does not fix them, so that no gradient was checked there.",
        "Draw from the device's default generator, as at::Philox kernels do.",
    ),
    "nondeterministic_grad": Code(
        "backward", "Repeats of one backward differ bitwise.", "Reduce in a fixed order instead of atomicAdd."
    ),
    "wrong_stream": Code(
        "backward", "Wrong when run on a stream other than the default.", "Launch on at::cuda::getCurrentCUDAStream()."
    ),
    "ignores_needs_input_grad": Code(
        "backward", "Wrong, or raises, when some operands are frozen.", "Check ctx.needs_input_grad."
    ),
    "accumulation_broken": Code(
        "backward", "A second backward does not double .grad.", "Return a fresh gradient tensor from each backward."
    ),
    "double_backward_unsupported": Code(
        "backward", "Gradients cannot be differentiated again.", "Build the backward from differentiable operations."
    ),
    "not_comparable": Code(
        "backward",
        "The reference draws random numbers; values were not compared there, or, as a warning, no gradient was.",
        "Nothing, or make the outputs follow small moves of the operands as the reference's do.",
    ),
    # timing
    "timed_output_wrong": Code("timing", "An output of a timed call is wrong.", "Compute the same in every call."),
    "timed_gradient_wrong": Code("timing", "A gradient of a timed call is wrong.", "Compute the same in every call."),
    "clock_disagreement": Code(
        "timing", "The worker's clock claims less than the referee's clock saw.", "Do not touch the timers."
    ),
    "launches_timed": Code(
        "timing",
        "A call waits for the GPU before all of it is queued, so both sides are timed with their launches.",
        "Do not wait for the device in forward or backward: no .item(), no synchronize().",
    ),
    "device_slowed": Code(
        "timing",
        "The GPU slowed its clocks for heat or power while it was timed, and did not recover.",
        "Look after its cooling and power supply, and grade again; the submission is not to blame.",
    ),
    "not_appraised": Code(
        "timing", "The speed of light and other baselines could not be told.", "Nothing: the times stand without them."
    ),
    "above_speed_of_light": Code(
        "timing",
        "It takes less time than this device needs for the reference's operations and memory.",
        "Read the source: it leaves work out, or the problem lets it; above 110% it is not ranked.",
    ),
    "checks_left_out": Code(
        "load",
        "Some checks were not made at full size, or not at all, for the reason that the message gives.",
        "Nothing.",
    ),
    # ours
    "problem_not_gradable": Code(
        "load", "The reference fails, or its results cannot be compared.", "Correct the problem file, or leave it out."
    ),
    "grader_failed": Code("load", "The grader itself failed.", "Report it; the submission is not to blame."),
}

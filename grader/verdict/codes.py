"""All diagnosis codes, with stage, meaning, remedy, severity and status.

The documentation is generated from this table.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from grader.verdict.models import StageName, Status

Severity = Literal["error", "warning", "info"]


class Code(NamedTuple):
    """The meaning of a diagnosis code."""

    stage: StageName
    """The stage that reports it, unless a diagnosis names another."""
    meaning: str
    remedy: str
    severity: Severity = "error"
    """The usual severity; a diagnosis may have another."""
    status: Status | None = None
    """The verdict's status when this code is reported. None: an error gives its stage's status, the rest gives none."""


CODES: dict[str, Code] = {
    # load
    "unreadable": Code("load", "The file is empty, too large or not UTF-8.",
        "Submit one Python file with a class ModelNew.", status=Status.INVALID_SUBMISSION),
    "syntax_error": Code("load", "The file is not valid Python.",
        "Fix the syntax error at the line named.", status=Status.INVALID_SUBMISSION),
    "no_model_new": Code("load", "The file defines no class ModelNew.",
        "Define `class ModelNew(nn.Module)` with a forward.", status=Status.INVALID_SUBMISSION),
    "constructor_signature": Code("load", "ModelNew does not take the problem's constructor arguments.",
        "Give __init__ the parameters of Model.", status=Status.INVALID_SUBMISSION),
    "constructor_raised": Code("load", "The constructor raised.", "See the traceback.", status=Status.RUNTIME_ERROR),
    "import_raised": Code("load", "The file raised at import.", "See the traceback.", status=Status.RUNTIME_ERROR),
    # build
    "compile_error": Code("build", "A compiler or linker refused an extension.",
        "See the first error in the build log.", status=Status.BUILD_ERROR),
    "build_timeout": Code("build", "It compiled too long.", "Compile fewer template instances.", status=Status.TIMEOUT),
    "needs_cuda": Code("build", "It needs a CUDA device, and there is none.",
        "Grade it on a machine with a GPU.", severity="info", status=Status.NOT_RUN),
    # process
    "raised": Code("forward", "Forward or backward raised.", "See the traceback.", status=Status.RUNTIME_ERROR),
    "crashed": Code("forward", "The process died.", "Look for an access out of bounds.", status=Status.CRASHED),
    "timed_out": Code("forward", "No answer in time.", "Look for an endless loop or a lock.", status=Status.TIMEOUT),
    "out_of_memory": Code("forward", "It used more memory than there is.",
        "Free intermediates; work in place.", status=Status.OUT_OF_MEMORY),
    "cuda_error": Code("forward", "A CUDA call failed: an illegal access or a bad launch.",
        "Check index bounds and launch sizes.", status=Status.RUNTIME_ERROR),
    "protocol_violation": Code("integrity",
        "The process sent a message that violates the worker protocol, or ran when it had to stand still.",
        "Do not touch the grader's descriptors, and leave nothing running after a call.",
        status=Status.INTEGRITY_VIOLATION),
    # forward
    "output_structure": Code("forward", "Other tensors than the reference returns.",
        "Return the same tuple or tensor."),
    "output_shape": Code("forward", "An output's shape differs from the reference's.", "Match the reference's shape."),
    "output_dtype": Code("forward", "An output's dtype differs from the reference's.", "Match the reference's dtype."),
    "output_device": Code("forward", "An output is on another device.", "Return tensors on the input's device."),
    "output_wrong": Code("forward", "An output's values are wrong.", "See the worst element and the relative error."),
    "output_nan": Code("forward", "NaN or infinity, unlike the reference.",
        "Look for 1/0, log(0), overflow and unwritten memory."),
    "gelu_tanh_for_erf": Code("forward", "GELU's tanh approximation where the reference uses erf.", "Use erff."),
    "gelu_erf_for_tanh": Code("forward", "GELU's erf where the reference uses the tanh approximation.", "Use tanhf."),
    "output_distribution": Code("forward",
        "The reference draws random numbers, and the outputs have another distribution.",
        "Draw in every forward, with the reference's probability, scale and mask shape."),
    "low_precision": Code("forward", "An output or gradient has the errors of a narrower type.",
        "Compute and store in float32."),
    "stale_output": Code("forward", "The output does not change with its inputs or parameters.",
        "Compute from the inputs in every call."),
    "output_overwritten": Code("forward", "The next forward overwrites the last output.",
        "Return a fresh tensor from each forward."),
    "parameters_missing": Code("forward", "Parameters of the reference have no counterpart.",
        "Keep names and shapes of Model's parameters."),
    "parameters_unmatched": Code("load",
        "Neither names nor values under equal seeds show which parameter is which, or one is in parts, and the output "
        "is wrong.",
        "Give parameters Model's names and shapes, or create them as Model does.", status=Status.INVALID_SUBMISSION),
    "buffers_not_updated": Code("forward",
        "A buffer, or a parameter that forward writes to, was not updated as the reference updates it.",
        "Update buffers in train mode."),
    "buffer_constructed_wrong": Code("forward",
        "A buffer that Model's constructor computes is another as ModelNew's constructor leaves it.",
        "Compute it in __init__ as Model does."),
    "train_eval_mismatch": Code("forward", "Correct in one of train() and eval(), wrong in the other.",
        "Honour self.training."),
    "ignores_input_element": Code("forward",
        "An element of an input or of parameters changed, and an output that depends on it did not.",
        "Compute outputs from all inputs and parameters in every call."),
    "assumes_contiguous_input": Code("forward",
        "Correct for contiguous inputs, wrong or refused for strided inputs; information only.",
        "Call .contiguous() on each input before data_ptr().", severity="info"),
    "narrow_inputs": Code("forward",
        "Correct for the inputs that get_inputs drew, wrong for others that the reference takes.",
        "Handle every input that the reference takes.", severity="warning"),
    "out_of_bounds_write": Code("forward",
        "Memory before or after a tensor was written; the message names the tensor, the side and the distance.",
        "Check the index against the size; mask the last block."),
    "reads_unwritten_memory": Code("forward",
        "Wrong when uninitialised memory and the memory around each tensor are filled with NaN.",
        "Initialise accumulators; check the index against the size."),
    "inputs_modified": Code("forward", "The forward changed its inputs.", "Write results into new tensors."),
    # backward
    "output_detached": Code("backward",
        "The output, or what is computed from it, does not require grad while the reference's does.",
        "Wrap a kernel in torch.autograd.Function and return its apply(); elsewhere, take out detach() and no_grad().",
        status=Status.MISSING_BACKWARD),
    "input_grad_none": Code("backward", "An input gets no gradient while the reference gives one.",
        "Return it from the Function's backward.", status=Status.MISSING_BACKWARD),
    "param_grad_none": Code("backward", "A parameter gets no gradient while the reference gives one.",
        "Return it from the Function's backward.", status=Status.MISSING_BACKWARD),
    "backward_not_implemented": Code("backward", "The Function has no backward, or an operation in it has none.",
        "Write the backward.", status=Status.MISSING_BACKWARD),
    "undefined_grad_output": Code("backward", "Wrong when only some of the outputs are used.",
        "Treat an unused output's grad_output as zero."),
    "unexpected_gradient": Code("backward", "The reference gives no gradient there.",
        "Detach what the reference detaches."),
    "ignores_detach": Code("backward", "It is the gradient without the detach() or no_grad().",
        "Treat such tensors as constants."),
    "grad_zero": Code("backward", "A gradient is all zero, the reference's is not.", "Compute it, and return that."),
    "grad_scaled": Code("backward", "A gradient is a constant multiple of the right one.", "Remove the factor named."),
    "grad_wrong": Code("backward", "A gradient's values are wrong.", "See the error and the worst element."),
    "grad_nan": Code("backward", "A gradient has NaN or infinity.", "Look for unwritten memory or division by zero."),
    "grad_shape": Code("backward", "A gradient's shape or dtype is wrong.", "Return grads shaped like inputs."),
    "ignores_grad_output": Code("backward", "The gradient is not linear in grad_output.",
        "Multiply by grad_output; do not assume ones."),
    "assumes_contiguous_grad_output": Code("backward",
        "Correct for a contiguous grad_output, wrong for an expanded, transposed or sliced one.",
        "Call grad_output.contiguous() before view() or data_ptr()."),
    "stale_saved_state": Code("backward",
        "A gradient uses values that another forward, or a change of the output, has overwritten.",
        "Save tensors with ctx.save_for_backward, not in globals or on ctx."),
    "saved_tensor_mutated": Code("backward", "Inputs or parameters were changed behind autograd's back.",
        "Do not write into inputs."),
    "grad_output_modified": Code("backward", "Backward changed grad_output.", "Write the gradient into a new tensor."),
    "inconsistent_with_forward": Code("backward",
        "The reference draws random numbers, and the gradient does not match the submission's own forward.",
        "Reuse in backward the mask that forward drew, and its scale."),
    "random_not_seeded": Code("backward",
        "The submission's random numbers do not depend on PyTorch's seed, so that no gradient was checked.",
        "Draw from the device's default generator, as at::Philox kernels do.", severity="warning"),
    "nondeterministic_grad": Code("backward", "Repeats of one backward differ bitwise.",
        "Reduce in a fixed order, without additions that are atomic or not synchronised."),
    "wrong_stream": Code("backward", "Wrong when run on a stream other than the default.",
        "Launch on at::cuda::getCurrentCUDAStream().", severity="warning"),
    "ignores_needs_input_grad": Code("backward", "Wrong or raises with frozen operands.",
        "Let no result depend on requires_grad; in a Function, check ctx.needs_input_grad."),
    "accumulation_broken": Code("backward", "A second backward does not double .grad.",
        "Return a fresh gradient tensor from each backward."),
    "double_backward_unsupported": Code("backward",
        "Gradients cannot be differentiated again, and the reference's can.",
        "Build the backward from differentiable operations.", severity="info"),
    "not_comparable": Code("backward",
        "The reference draws random numbers: values, or (as a warning) gradients, were not compared.",
        "No change is needed, unless the outputs can follow the operands smoothly as the reference's do.",
        severity="info"),
    # timing
    "timed_output_wrong": Code("timing", "An output of a timed call is wrong.",
        "Compute the same in every call.", status=Status.WRONG_OUTPUT),
    "timed_gradient_wrong": Code("timing", "A gradient of a timed call is wrong.",
        "Compute the same in every call.", status=Status.WRONG_BACKWARD),
    "clock_disagreement": Code("timing", "The worker reports less time than the referee measured.",
        "Do not touch the timers.", severity="warning"),
    "launches_timed": Code("timing",
        "A call waits for the GPU before all of its work is queued, so both sides are timed including launches.",
        "Do not wait for the device in forward or backward: no .item(), no synchronize().", severity="info"),
    "device_slowed": Code("timing", "The GPU reduced its clocks for heat or power during timing, and did not recover.",
        "Check cooling and power supply, and grade again; the submission is not the cause.", severity="warning"),
    "not_appraised": Code("timing", "The roofline bound (speed of light) and other baselines could not be measured.",
        "No change is needed: the times are valid without them.", severity="info"),
    "above_roofline_bound": Code("timing",
        "It is faster than the roofline bound: the time this device needs for the reference's operations and memory.",
        "Read the source: it omits work, or the problem allows that; above 110% it is not ranked.", severity="warning"),
    "trivial_outputs": Code("load",
        "Outputs that do not depend on the problem's inputs, such as a constant, pass its tolerance.",
        "The submission needs no change; have the problem's outputs vary with its inputs.", severity="warning"),
    "checks_left_out": Code("load", "Some checks were not made at full size, or not at all.",
        "No change is needed.", severity="info"),
    # the problem and the grader
    "problem_not_gradable": Code("load", "The reference fails, or its results cannot be compared.",
        "Correct the problem file, or leave it out.", status=Status.NOT_RUN),
    "grader_failed": Code("load", "The grader itself failed.",
        "Report it; the submission is not the cause.", status=Status.GRADER_ERROR),
}  # fmt: skip

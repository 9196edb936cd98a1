"""What a stage's node in Kubeflow shows to compare runs: few numbers, one name for one thing in all stages.

======================  ================================================================================
rows_in                 rows (of clean, records of the raw files) that came in; rows_out of the stage before
rows_kept               those that were not dropped; rows_in less everything that was
rows_out                rows that the result holds; of sample, over all epochs
drop_fraction           share of rows_in that was dropped, 0 to 1
sources, files          data sets and raw files
malformed               records that are not what their source promises, among the dropped
tasks                   data sets by the names that the rules of prefix_config_path match
text_bytes              UTF-8 bytes of instructions and responses
tokens                  delimiters and condition tags included; of sample, over all epochs
response_tokens         those of them in responses; of mix, those that are planned
given_tokens            those of them that token files of others brought, of tokenize with tokens=
split_rows              rows that long_context: split cut
split_pieces            the pieces of these rows
split_tokens            the tokens of their responses
padded_tokens_unpacked  slots without a token, over all epochs, if each row has a context to itself; a loader packs rows
unfilled_tokens         response tokens of a mixture's budget that its caps do not allow
most_passes             of a mixture, how often the most repeated source is passed over
mixture_…               of sample with a mixture: sources and phases; largest_difference_pp of planned and drawn
                        shares of the whole training in percentage points, largest_error_pp, a standard error;
                        shares out_of_tolerance, those of epochs and phases included; tasks over_cap
tokens_per_byte         tokens of texts per byte of text; of train_tokenizer, of the text that it is trained on
bytes                   of the files that were made; of fetch, of the raw files; of sample, on a node
loss, accuracy          of train, means over the last 5% of its steps; also exact_accuracy, perplexity
heldout_loss            of held-out rows with the weights at the end; heldout_ema_loss, with averaged weights;
                        heldout_perplexity, heldout_ema_perplexity
steps, parameters       of train; tokens, labels and flops are those of all its steps
tokens_per_s, mfu       of train, measured without evaluation and checkpoints; mfu where the device's peak is known
======================  ================================================================================

Other times are not among them: a result that is used again shows what it showed when it was made.
"""

from __future__ import annotations

from pairmill.engine.manifest import Ledger


def of_rows(ledger: Ledger) -> dict[str, float]:
    """Return what became of the rows."""
    return {
        "rows_in": ledger.rows_in,
        "rows_kept": ledger.rows_kept,
        "rows_out": ledger.rows_out,
        "drop_fraction": round(1 - ledger.rows_kept / ledger.rows_in, 6) if ledger.rows_in else 0.0,
    }

#!/bin/bash
# The line as a chain of array jobs, each after the one before has ended well. docs/slurm.md
#
#   line.sh run.yaml 16 [option of sbatch …]       # 16 tasks a stage; as --partition=small --account=project_1
#
# fetch runs here, where there is a network. STAGES="clean tokenize" submits those alone: what is before them has to be
# finished, and what is between them is done by the tasks of the next one.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '4,7s/^# *//p' "$0" >&2; exit 2; }
run_file=$1 tasks=$2
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2086
${PAIRMILL:-pairmill} run "$run_file" upto=fetch

after=()
submit() { # STAGE OPTION-OF-SBATCH…
  local stage=$1 job
  shift
  job=$(sbatch --parsable --job-name="$stage" --kill-on-invalid-dep=yes "${after[@]}" "$@" "$here/stage.sbatch" "$stage" "$run_file")
  echo "$stage: job ${job%%;*}"
  after=("--dependency=afterok:${job%%;*}")
}
for stage in ${STAGES-clean curate select train_tokenizer tokenize}; do
  submit "$stage" --array="0-$((tasks - 1))" "$@"
done
submit all "$@"

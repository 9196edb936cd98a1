"""tasksource (Hub ``tasksource/tasksource-instruct-v0``), 194 of its tasks: short prompts with a label or an answer."""

import re
from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.fields import text_of, text_or_null
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Drop, Labelled, Parsed
from pairmill.sources.source import Context, Source

_LONGEST_LABEL = 5
_SENTENCE_END = re.compile(r"[.]|[!?]\s")

_NAMES = """
CONDAQA ConTRoL-nli FLUTE HatemojiBuild I2D2 MOH MedQA-USMLE-4-options-hf PARARULE-Plus SpaceNLI Touche23-ValueEval
TroFi VUAC WANLI acronym_identification add_one_rte arct autotnli avicenna balanced-copa banking77 breaking_nli
citation_intent cladder clcd-english cloth cnli com2sense commonsense_qa_2.0 conceptrules_v2 conj_nli conll2000
conll2003/chunk_tags conll2003/ner_tags conll2003/pos_tags corr2cause counterfactually-augmented-imdb
counterfactually-augmented-snli crowdflower/airline-sentiment crowdflower/political-media-audience
crowdflower/political-media-bias crowdflower/political-media-message crowdflower/sentiment_nuclear_power
crowdflower/text_emotion cycic_classification cycic_multiplechoice dadc-limit-nli defeasible-nli/atomic
defeasible-nli/snli dgen dialogue_nli discosense disrpt/eng.dep.scidtb dnc dnd_style_intents dynahate
dynasent/dynabench.dynasent.r1.all/r1 dynasent/dynabench.dynasent.r2.all/r2 e-CARE equate esci
fever-evidence-related/mwong--fever-related few-nerd/supervised fig-qa folio fool-me-twice fracas
gen_debiased_nli/mnli_par_z gen_debiased_nli/mnli_seq_z gen_debiased_nli/mnli_z_aug gen_debiased_nli/snli_par_z
gen_debiased_nli/snli_seq_z gen_debiased_nli/snli_z_aug hate_speech18 hate_speech_offensive help-nli hlgd
implicatures implicit-hate-stg1 jnlpba/jnlpba language-identification lex_glue/ledgar
lexical_relation_classification/BLESS lexical_relation_classification/CogALexV
lexical_relation_classification/EVALution lingnli logical-fallacy logiqa logiqa-2.0-nli lonli lsat_qa/all
mbib-base/cognitive-bias mbib-base/gender-bias mbib-base/hate-speech mbib-base/political-bias mbib-base/racial-bias
medmcqa mindgames monli monotonicity-entailment moral_stories/full mpe mutual nan-nli/joey234--nan-nli
natural-language-satisfiability naturallogic ncbi_disease/ncbi_disease nli-veridicality-transitivity nli_fever
onestop_qa ontonotes_english/SpeedOfMagic--ontonotes_english open_question_type parade pragmeval/emergent
pragmeval/gum pragmeval/mrda pragmeval/pdtb pragmeval/sarcasm pragmeval/stac pragmeval/switchboard
pragmeval/verifiability probability_words_nli/reasoning_1hop probability_words_nli/reasoning_2hop
probability_words_nli/usnli propsegment/nli prost puzzte quote-repetition race-c recast/recast_factuality
recast/recast_megaveridicality recast/recast_ner recast/recast_puns recast/recast_sentiment recast/recast_verbcorner
recast/recast_verbnet recast_white/dpr recast_white/fnplus recast_white/sprl reclor redefine-math regset
riddle_sense robustLR robust_nli/IS_CS robust_nli/LI_LI robust_nli/PI_CD robust_nli/PI_SP robust_nli/ST_LM
robust_nli/ST_NE robust_nli/ST_SE robust_nli/ST_WO robust_nli_is_sd robust_nli_li_ts rotten_tomatoes ruletaker
rumoureval_2019/RumourEval2019 scicite scientific-exaggeration-detection scinli scone scruples sem_eval_2010_task_8
sen-making/1 sen-making/2 sharc_modified/mod sherliic sms_spam snips_built_in_intents spartqa-mchoice spartqa-yn
starcon subjectivity summarize_from_feedback/comparisons syntactic-augmentation-nli temporal-nli tomi-nli tracie
tweet_eval/emoji tweet_eval/emotion tweet_eval/hate tweet_eval/irony tweet_eval/offensive tweet_eval/sentiment
tweets_hate_speech_detection twentyquestions twitter-financial-news-sentiment universal_dependencies/en_ewt/deprel
universal_dependencies/en_gum/deprel universal_dependencies/en_lines/deprel universal_dependencies/en_partut/deprel
vitaminc/tals--vitaminc wikimedqa/medwiki winodict wnut_17/wnut_17
"""
_TASKS = tuple(_NAMES.split())
_KNOWN = frozenset(_TASKS)


class TaskSource(Source):
    """One output per task of the list.

    The data set ends every target with a full stop. The reference takes the last one off everything, off sentences
    and abbreviations too. Here only a label loses it: at most five words that hold no other full stop and no other
    sentence (``!`` or ``?`` with white space behind it). So ``entailment.`` becomes ``entailment``; ``U.S.``, ``...``,
    ``.`` and sentences of more than five words stay as they are.
    """

    name = "tasksource"
    # The repository was renamed to tasksource-instruct and its main branch rebuilt: this is the data of version 0.
    origin = Hub(
        "tasksource/tasksource-instruct-v0", ("data/train-*",), revision="fb4cd8d7429e7c60d83dcacf774861228f257a43"
    )
    licence = "Apache-2.0"
    citation = (
        "Sileo: tasksource: Structured Dataset Preprocessing Annotations for Frictionless Extreme Multi-Task Learning "
        "and Evaluation. 2023, arXiv:2301.05948"
    )
    fields = ("inputs", "targets", "task")
    output = "data_clustered/tasksource/{}.parquet"

    def parse(self, record: Any, context: Context) -> Parsed:
        task = text_or_null(record, "task")
        if task is None or task not in _KNOWN:
            return Drop("task_not_in_the_list")
        target, inputs = text_of(record, "targets"), text_or_null(record, "inputs")
        label = target.removesuffix(".")
        if context.quirks.strip_every_full_stop or _is_label(label):
            target = label
        return Labelled(task, Row("direct", inputs, target))


def _is_label(text: str) -> bool:
    return 1 <= len(text.split()) <= _LONGEST_LABEL and not _SENTENCE_END.search(text)

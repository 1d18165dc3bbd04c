"""Compares treatments of exposure bias: what each changes in quality, hallucinated outputs and measures of exposure.

    python -m benchmarks.exposure_study run --data data --out runs/exposure --minutes 9 --at-once 10
    python -m benchmarks.exposure_study collect --data data --out runs/exposure --json docs/images/exposure-study.json
    python -m benchmarks.exposure_study report docs/images/exposure-study.json --figure docs/images/exposure-study.svg

Start it in the project's root. `run` trains and evaluates, several processes at once. It keeps finished work: the
same command goes on. After `--minutes`, trainings get SIGTERM, save and end, which takes some seconds more. Processes
share a GPU better with NVIDIA's MPS (start `nvidia-cuda-mps-control -d` before). `collect` computes scores and tests
on the CPU from OUT/results and OUT/plan.json. It needs DATA but no model, so it may run on another machine. `report`
prints tables and draws the picture. It needs only the JSON file, which has no sentences.

A pilot has its own folder and shorter trainings:

    python -m benchmarks.exposure_study run --out runs/pilot --seeds 1 --steps 100 --mrt-steps 50 \\
        --set base:train.steps=500 --set mrt:train.mrt_alpha=0.5 --set mrt_shuffled:train.mrt_alpha=0.5

DATA has the folders multi30k and tatoeba_en_de with the files of the recipes, and msctd_en_de with dev and test, each
as .en.gz and .de.gz.

Protocol

Models. For each data set (Multi30k, Tatoeba, English to German) and seed, `base` is the recipe. Every other model
continues the base model for the same number of updates (--steps), with new moments of the optimizer, the base's
prepared data and seed, so with the same batches in the same order; linear decay from 2e-4; the last weights, not the
best of several:

    control         nothing else; Multi30k's recipe has R-Drop, and so have its continuations
    input_noise     train.input_noise = 0.15
    schedule        scheduled sampling by a schedule, from the first update on; half of the inputs are the reference
                    after half of the updates
    confidence      scheduled sampling by confidence, from the first update on
    r_drop          R-Drop; Tatoeba only, whose recipe has none
    mrt             minimum risk training: --mrt-steps updates of about 64 sentences, constant rate 1e-5, alpha 0.05,
                    weight 0.02 of the cross-entropy, so that the risk leads
    mrt_shuffled    the same, but the risks are shuffled among the candidates of each source

The control of mrt is mrt_shuffled, because mrt has other batches than the rest: both see the same sources, samples and
cross-entropy, and only mrt knows which sample is good. The control of the others is `control`. So a gain is not just
more training. Compare control and mrt_shuffled with base to see what more training does.

Texts. In domain: test 2016 and 2017 of Multi30k, the test set of Tatoeba. Under shift: models of Tatoeba on Multi30k's
test 2016 and on film lines (MSCTD); models of Multi30k on Tatoeba's test set. The first --lines lines of each.

Outputs, by greedy search and a beam of 5, without splitting into sentences: BLEU, chrF, length (words of outputs /
words of references), repeated (% of words equal to the word before), and the shares of loops and detached outputs by
the rules of faults.py. The judge of contrasts is the base model of another seed, trained on the text's own data set
(film lines: on Tatoeba), and never the model itself or what it was made from. A text has one judge per seed, so a
treatment and its control have the same one. The table of detectors has the recall on injected faults, and the false
alarms on references and on other references of the same source.

Exposure, with the definitions of docs/exposure-bias.md, on the first --exposure-lines lines: accuracy after gold and
own prefixes, loss of the references, recovery after a corrupted token, distractor gap, and %ExAccErr with the base
model of another seed as oracle. Such an oracle is about as good as the model, so ExAccErr means little here.

Tests. A treatment and its control are compared by paired bootstrap over lines (1,000 samples), on each seed and on the
mean of the seeds. A star marks a difference with p < 0.05, an interval without 0 and the same sign on all seeds. Seeds
are not resampled, so two seeds say little about how much a training varies.
"""

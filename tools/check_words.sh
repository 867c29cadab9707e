#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_words.sh [FILE...] - refuses words that the field does not use, and phrases
# that a reader has to read twice (docs/glossary.md has our words).  Prints file:line,
# the line and what to write; silent when nothing is wrong.  Without files: the tree.
set -u
cd "$(dirname "$0")/.." || exit 2

# Patterns (grep -P) and what to write instead.  Words of the first group are also
# found in names with underscores.  A phrase is here only if it is nearly always wrong;
# tests/cli/test_prose.py has sentences that are refused and sentences that are not.
words() {
	cat <<-'END'
	(?i)(?<![a-z])rooms?(?![a-z])	backend
	(?i)(?<![a-z])(front[ _-]?)?doors?(?![a-z])	public API, API layer, PyTorch integration
	(?i)(?<![a-z])peers?(?![a-z])	baseline
	(?i)(?<![a-z])contestants?(?![a-z])	entry, row
	(?i)(?<![a-z])mixtures?(?![a-z])(?![-_ ]of([-_ ]experts|\s*$))(?!\s*$)	mixture of experts, MoE
	(?i)ways? of the data	data flow
	(?i)tokens?['’]? kernels?	activation conversion kernel
	(?i)few[ _-]tokens	small-m, few rows
	(?i)(joining|join) (the )?parts|parts? of k\b	split-k reduction, split-k slice
	(?i)\bin_?turns\b|\btak(e|es|en|ing) turns	alternating, interleaved; one after the other
	(?i)\bwhoever\b	name the caller, the thread or the code
	(?i)\bwhom\b	name the caller, the thread or the code
	(?i)\bnobody waits	no CTA (thread, warp) waits
	(?i)\bof its own accord\b	by itself
	\b[Ww]ho (copies|reads|multiplies|sends|stores|waits|loads|adds|asks)\b	the warp (thread, CTA) that ...
	(^\W*|[.:;!?]\s+|\|\s+)Of (?!limit)[a-z0-9]	begin with the subject
	(?<!hidden )(?<!hides )(?<!hide )(?<!hid )\bbehind($| (the|an?|it|its|them|their|this|that|these|those|each|every|all|any|one|another|which|what|k|me)\b)	after, following (behind: hidden by)
	(?i)\b(is|are|was|were|be) (not )?there(?=\W*$|[.,;:)])	exists, is installed, is not supported
	(?i)\b(is|are) (not )?there (in|on|to|for|too|already|when|where|if|and|but|as|only|yet|anyway|once)\b	exists, is installed, is not supported
	(?i)\b(lies?|stands?) (at|behind|beside|before|after|there|where|next|together|around)\b|\blies? in (?!\()|\bstands? in (an?|the|its|their|this|one|[0-9])\b	is, is stored
	(?<!left )(?<!leave )(?<!leaves )(?<!let )(?<!run )(?<!runs )(?<!ran )(?<!stands )(?<!stand )(?<!bool )(?<!\bone )(?<=[\w)`'’] )alone(?= *([.,;:)|]|\*/|$))	only (placed before its word)
	(?<!stands )(?<!stand )\balone (is|are|was|can|cannot|has|have|would|will|may|must|does|do|tells?|shows?|decides?|orders?|stops?)\b	only (placed before its word)
	(?i)(?<![\w.'])(?<!struct )beside( (?=[\w`(])(?!b = )|$)	next to, compared with, in addition to
	(?i)\bheed(s|ed|ing)?\b	honours
	\basks for\b	requests, needs
	\bbrings (A|B|its|the|an?|them|it|no|data)\b	loads, copies, installs, contains
	\bhand(s|ed)? (it|them|on|over|the|back|its|an?) 	passes, returns
	\bhands? (on|over|back|out)\b	passes, returns
	\bheld (to|against)\b	compared with
	(?i)\btakes? part\b	is used, is converted
	(?i)\bwhat became of\b	the state of, the result for
	\d( [a-zA-Z]{1,4})? and not \d	X (was Y)
	END
}

# Files, lines, and why such lines may stay.
exceptions() {
	cat <<-'END'
	^emu/|^tests/.*emu|^docs/(emulator|software-gpu-bugs)	(?i)peer	PTX: the other CTA of a pair or cluster
	.	notes/0038-few-tokens	the name of a note
	^tests/cuda/results_	.	recorded answers of a GPU
	^docs/software-gpu-bugs	.	written by make emu-bugs
	^NEWS\.md:	.	past versions
	^tools/check_words\.sh:	.	the table itself
	^tests/cli/test_prose\.py:	.	its sentences that are refused
	END
}

# The files of the tree but for the archive of notes, results, the licence and the
# inputs of the fuzzers.
files() {
	{ git ls-files 2>/dev/null || find . -name build -prune -o -type f -print |
		sed 's@^\./@@'; } |
		grep -vE '^docs/(notes|results)/|(^|/)LICENSE$|/fuzz/corpus/'
}

found=$(mktemp)
trap 'rm -f "$found"' EXIT
tab=$(printf '\t')

words | while IFS=$tab read -r pattern instead; do
	{ if [ $# -gt 0 ]; then printf '%s\n' "$@"; else files; fi; } |
		xargs -d '\n' grep -HnIP -- "$pattern" 2>/dev/null |
		awk -v instead="$instead" '{ print $0 "   [" instead "]" }'
done >"$found"

exceptions | while IFS=$tab read -r file line _; do
	awk -v file="$file" '$0 ~ file { print NR }' "$found" >"$found.lines"
	grep -nP -- "$line" "$found" | cut -d: -f1 | grep -Fx -f "$found.lines"
done | sort -u >"$found.allowed"
awk 'FILENAME == ARGV[1] { allowed[$1] = 1; next } !(FNR in allowed)' \
	"$found.allowed" "$found" >"$found.left"
cat "$found.left"
[ ! -s "$found.left" ]
status=$?
rm -f "$found.lines" "$found.allowed" "$found.left"
exit $status

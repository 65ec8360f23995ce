"""The grammar of the language as data, for the reference page and for tests of the parser.

`{ }` repeats, `[ ]` is optional, and names in capitals are tokens. A test derives random programs from these rules and
parses them.
"""

from __future__ import annotations

from typing import Final

GRAMMAR: Final[dict[str, dict[str, str]]] = {
    "Programs": {
        "program": "{ item }",
        "item": "type_declaration | [ label ] process | [ label ] statement",
        "label": '"@" "label" "(" "title" ":" STRING [ "," "description" ":" STRING ] [ "," ] ")"',
        "type_declaration": '"type" NAME "=" type',
        "process": '"process" NAME "(" [ parameters ] ")" [ "signals" "{" [ parameters ] "}" ] [ "-" ">" type ] block',
        "parameters": 'NAME ":" type { "," NAME ":" type } [ "," ]',
        "block": '"{" { [ label ] statement } "}"',
    },
    "Statements": {
        "statement": (
            "if_statement | for_statement | while_statement | assignment | cancel_statement"
            " | loop_statement | foreground_statement | process_statement | expression"
        ),
        "if_statement": '"if" expression block [ "else" ( if_statement | block ) ]',
        "for_statement": '"for" NAME "in" expression block',
        "while_statement": '"while" expression block',
        "loop_statement": '"break" | "continue"',
        "assignment": '[ "let" ] NAME { "." key | "[" expression "]" } "=" expression',
        "cancel_statement": '"cancel" expression',
        "foreground_statement": '"submit" [ expression ] | "print" expression',
        "process_statement": '"yield" expression | "wake" expression | "finish" [ expression ] | "fail" expression',
    },
    "Expressions": {
        "expression": 'disjunction [ "?" expression ":" expression ]',
        "disjunction": 'conjunction { ( "or" | "||" ) conjunction }',
        "conjunction": 'comparison { ( "and" | "&&" ) comparison }',
        "comparison": 'sum { ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) sum }',
        "sum": 'product { ( "+" | "-" ) product }',
        "product": 'unary { ( "*" | "/" | "%" ) unary }',
        "unary": '( "-" | "not" | "!" | "await" ) unary | postfix',
        "postfix": 'primary { "." key [ arguments ] | "[" expression "]" | unwrap }',
        "unwrap": '"?"',
        "primary": (
            '"null" | "true" | "false" | NUMBER | STRING | NAME [ arguments ] | "(" expression ")" | list | record'
            ' | "Type" object_type | start | sleep | wait_signal | signal_run'
        ),
        "arguments": '"(" [ expression { "," expression } [ "," ] ] ")"',
        "list": '"[" [ expression { "," expression } [ "," ] ] "]" | "[" expression for_clause { clause } "]"',
        "clause": 'for_clause | "if" expression',
        "for_clause": '"for" NAME "in" expression',
        "record": '"{" [ entry { "," entry } [ "," ] ] "}"',
        "entry": 'key ":" expression',
        "key": "NAME | STRING | KEYWORD",
        "start": '"start" NAME "(" [ entry { "," entry } [ "," ] ] ")"',
        "sleep": '"sleep" ( "for" expression | "until" expression )',
        "wait_signal": '"wait_signal" "(" STRING ")"',
        "signal_run": '"signal_run" "(" expression "," STRING "," expression ")"',
    },
    "Types": {
        "type": 'term { "|" term }',
        "term": (
            '"null" | STRING | [ "Type" ] object_type | "list" "[" type "]" | "enum" "[" STRING { "," STRING } "]"'
            ' | "Process" "<" type "," type ">" | "TriggerHandle" "<" type ">" | NAME { "." NAME }'
        ),
        "object_type": '"{" [ field { "," field } [ "," ] ] "}"',
        "field": 'key ":" type [ "?" ]',
    },
}
"""The rules by section."""

RULES: Final = {name: rule for section in GRAMMAR.values() for name, rule in section.items()}
TOKENS: Final = {
    "NAME": "an ASCII letter or `_`, then letters, digits and `_`",
    "NUMBER": "digits with at most one point; no sign, exponent, underscore or hex",
    "STRING": (
        "text in `\"`, `'`, `\"\"\"` or `'''`, with the escapes `\\n`, `\\r`, `\\t`, `\\\\` and that of the quote;"
        " behind `r` or `R` it has no escapes"
    ),
    "KEYWORD": "one of the keywords",
}
"""What the tokens in capitals are."""

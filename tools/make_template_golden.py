#!/usr/bin/env python3
"""Golden texts for the Jinja interpreter: what jinja2 renders, set up as Transformers' apply_chat_template does.

  tools/make_template_golden.py golden                          -> tests/golden/template/golden.jsonl
  tools/make_template_golden.py compare DIR [--program PROGRAM] every DIR/*.jinja over all conversations, both programs

golden takes the templates in tests/golden/template (written for this test) and the snippets below.  compare is for templates
that are not part of kvant (llama.cpp keeps many in models/templates); PROGRAM is check_jinja.  Both need jinja2.
A template that calls list.append, which Transformers' sandbox refuses, is rendered by the plain sandbox."""
import argparse, copy, datetime, functools, itertools, json, subprocess, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/golden/template"
NOW = 1767225600        # 2026-01-01 00:00 UTC; the test sets this clock and TZ
S, U, A, T = "system", "user", "assistant", "tool"


def m(role, content, **more):
    return dict(role=role, content=content, **more)


def call(name, arguments, i):
    return {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}


def text(s):
    return {"type": "text", "text": s}


TOOLS = [{'type': 'function',
  'function': {'name': 'get_weather',
               'description': 'Weather of a city.\nNow & "here"',
               'parameters': {'type': 'object',
                              'properties': {'city': {'type': 'string', 'description': 'The city'},
                                             'unit': {'type': 'string', 'enum': ['c', 'f'], 'default': 'c'},
                                             'days': {'type': 'integer', 'minimum': 1, 'maximum': 7.5}},
                              'required': ['city']}}},
 {'type': 'function',
  'function': {'name': 'search',
               'description': 'Finds é中😀 things',
               'parameters': {'type': 'object',
                              'properties': {'q': {'type': ['string', 'null']},
                                             'opts': {'type': 'object',
                                                      'properties': {'deep': {'type': 'boolean'},
                                                                     'tags': {'type': 'array', 'items': {'type': 'string'}}},
                                                      'additionalProperties': False}},
                              'required': ['q', 'opts']},
               'strict': True}},
 {'type': 'function', 'function': {'name': 'now', 'description': '', 'parameters': {'type': 'object', 'properties': {}}}}]

CONVERSATIONS = [
    [m(U, 'Hello')],
    [m(S, 'You are terse.'), m(U, 'Hello')],
    [m(U, 'Hello'), m(A, 'Hi there'), m(U, 'Who are you?')],
    [m(S, 'You are terse.'), m(U, 'Hello'), m(A, 'Hi there'), m(U, 'Who are you?')],
    [m(S, '  Be\n\nbrief. \n'), m(U, '\n  Hello \u3000\n'), m(A, '\xa0  Hi \t'), m(U, '\x1fWho?\u2003\n\n')],
    [m(U, 'Hello'), m(A, 'Hi there')],
    [m(U, '1+1?'), m(A, '<think>\nOne and one.\n\n</think>\n\n2'), m(U, '2+2?')],
    [m(U, '1+1?'), m(A, '2', reasoning_content='One and one.\n'), m(U, '2+2?'), m(A, '4', reasoning_content='two')],
    [m(U, '1+1?'), m(A, '\n\n<think> a <think>b</think> c</think>\n\n\n2 '), m(U, '2+2?'), m(A, '</think>4')],
    [m(U, 'Weather?'),
     m(A, '', tool_calls=[call('get_weather', {'city': 'Köln "x"', 'days': 2, 'f': 1.5, 'n': None, 'b': True}, 'abcdefghi')]),
     m(T, 'sunny', tool_call_id='abcdefghi', name='get_weather'),
     m(A, 'Sunny.'),
     m(U, 'Thanks')],
    [m(U, 'Weather?'),
     m(A, None, tool_calls=[call('get_weather', {'city': 'A'}, 'aaaaaaaa1'), call('search', {'q': 'x', 'opts': {'deep': False, 'tags': ['a', 'b']}}, 'aaaaaaaa2')]),
     m(T, 'sunny', tool_call_id='aaaaaaaa1', name='get_weather'),
     m(T, '{"r": [1, 2]}', tool_call_id='aaaaaaaa2', name='search'),
     m(A, 'Done.')],
    [m(U, 'Weather?'),
     m(A, 'I look.', reasoning_content='I must look.', tool_calls=[call('now', {}, '000000000')]),
     m(T, '12:00', tool_call_id='000000000', name='now')],
    [m(U, 'Weather?'),
     m(A, 'I look.', tool_calls=[call('get_weather', '{"city": "B"}', '000000001')]),
     m(T, '12', tool_call_id='000000001', name='get_weather'),
     m(U, 'so?')],
    [m(U, 'Say <|im_end|> and <|eot_id|> and [/INST] and </s> and <end_of_turn>'), m(A, '<|im_start|>'), m(U, '\xe9\u4e2d\U0001f600')],
    [m(U, ''), m(A, ''), m(U, '')],
    [m(U, [text('Hello '), text('parts')])],
    [m(S, [text('Sys')]), m(U, [text('Hello')]), m(A, [text('Hi')]), m(U, 'x')],
    [m(U, 'a'), m(A, 'b'), m(U, 'c'), m(A, 'd'), m(U, 'e'), m(A, 'f'), m(U, 'g')],
    [m(S, 's'), m(U, 'a'), m(S, 'late'), m(U, 'c')],
    [m(U, 'a'), m(U, 'b')],
    [m('developer', 'dev'), m(U, 'b')],
    [m(S, 's'), m(A, 'first'), m(U, 'q')],
    [m(S, 'alone')],
    [m(U, 'x', name='bob'), m(A, 'y')],
    [m(U, 'see'), m(U, [{'type': 'image'}, text('what?')])],
]

KWARGS = [{}, {'enable_thinking': False}, {'enable_thinking': True}, {'reasoning_effort': 'high', 'thinking': True}]

# One-line programs: what the language does in corners that templates step on.
SNIPPETS = [
    "{{ 1 }} {{ -1 }} {{ 1.0 }} {{ 1e20 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}",
    "{{ true }} {{ none }} {{ [1, 'a', true, none, 1.5] }} {{ {'a': [1], 'b': {}} }} {{ (1,) }} {{ () }} {{ 'it\\'s' }} {{ ['it\\'s', '\"', '\\n\\t\\\\', '\\x7f\\xa0\\u2028é'] }}",
    "{{ 'a' 'b' \"c\" }} {{ 'a' ~ 1 ~ none ~ true }} {{ 'ab' * 3 }} {{ [1] + [2] }} {{ [0] * 2 }} {{ (1, 2) + (3,) }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'a' in 'abc' }} {{ 'x' not in ['x'] }} {{ 'k' in {'k': 1} }}",
    "{{ not true or true and false }} {{ not 1 == 2 }} {{ 1 and 2 }} {{ 0 or 'x' }} {{ '' or none }} {{ 1 if 0 }}|{{ 1 if 0 else 2 if 1 else 3 }}",
    "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 'a' ~ 1 + 2 }} {{ -2 ** 2 }} {{ -1 | abs }} {{ 10 - 2 - 3 }} {{ 2 * 3 ~ 'x' }}",
    "{{ 'héllo wörld'[1:4] }} {{ 'héllo'[::-1] }} {{ 'héllo'[-2:] }} {{ 'abc'[5] }}|{{ 'abc'[-1] }} {{ [1,2,3,4][1::2] }} {{ [1,2,3][::-1] }} {{ 'abc'[2:1] }}| {{ [1,2,3][-9:9] }} {{ 'abc'[:-9:-1] }}",
    "{{ x }}|{{ x is defined }}|{{ x is undefined }}|{{ none.y }}|{{ {}.a }}|{{ {'a': 1}['b'] }}|{{ 'abc'.nope }}|{{ x | default('d') }}|{{ '' | default('d') }}|{{ '' | default('d', true) }}|{{ x | length }}|{{ x | list }}",
    "{{ x.y }}", "{{ x['y'] }}", "{{ x + 1 }}", "{{ x() }}", "{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ [] < 1 }}", "{{ 1 in 'a' }}", "{{ x | tojson }}",
    "{{ {'a': 1}.items() | list }} {{ {'b': 1, 'a': 2}.keys() | list }} {{ {'a': 1}.values() | list }} {{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 3) }}",
    "{{ {'items': 1}['items'] }} {{ {'items': 1}.items is callable }} {{ {1: 'i', 1.5: 'f', true: 'b', none: 'n'} }}",
    "{% for i in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2) }};{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}{% for i in [1, 2, 3, 4] if i is odd %}{{ i }}/{{ loop.length }} {% else %}no{% endfor %}{% for i in [2] if i is odd %}x{% else %}no{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }}{% if not loop.last %}, {% endif %}{% endfor %} {% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %} {% for c in 'hé' %}{{ c }}.{% endfor %} {% for k in {'x': 1} %}{{ k }}{% endfor %}",
    "{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }} {% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }} {{ ns.m }}|{{ ns.m is defined }}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %} {% for i in range(3) %}{% for j in range(3) %}{% if j > i %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for i in range(3) %}{% set t %}{{ i }}{% if i == 1 %}{% break %}{% endif %}{% endset %}[{{ t }}]{% endfor %}{% for i in range(3) %}{% with y = i %}{% if y == 1 %}{% continue %}{% endif %}{{ y }}{% endwith %}{% endfor %}",
    "{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(3) | sum }}", "{{ range(1000000) | length }}", "{{ range(1, 2, 0) }}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }} {{ m(1, c=9) | upper }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }} {{ m() }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}{% for i in [7] %}{% macro n() %}{{ i }}{% endmacro %}{{ n() }}{% endfor %}",
    "{% macro w(t='x') %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call w('b') %}in{{ 1 + 1 }}{% endcall %}{% call w() %}{% call w('i') %}deep{% endcall %}{% endcall %}",
    "{% macro l(items) %}{% for i in items %}[{{ caller(i, loop.index) }}]{% endfor %}{% endmacro %}{% call(x, n=0) l('ab') %}{{ x }}{{ n }}{% endcall %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t }}{% set b | upper | trim %} hi {{ a }} {% endset %}[{{ b }}]{% filter upper %}low {{ 'x' }}{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% set a = 9 %}{{ a }}{% endwith %}{{ a }}|{% if x %}a{% elif y %}b{% else %}c{% endif %}{% if 0 %}{% elif 1 %}e{% endif %}",
    "a\n  {%- if 1 %}\n  b\n  {%+ if 1 %}\n  c{% endif +%}\n\n{% endif -%}\n\n d {{- 1 -}} e\n  {# c #}\nf {#- g -#} h\n{% raw %}{{ x }}{% if %}{% endraw %}\ni\n   {% set x = 1 %}   \nj   {% set x = 2 %}\n{{ x }}\nk\n\n",
    "\n\n{% if true %}\n  x\n{% endif %}\n\n  {%- raw -%}\n {{ y }} {%- endraw -%}\n z\n{{ 'a\\tb\\x41\\u00e9\\101\\q' }}\n",
    "{{ '  a b ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ '  a '.lstrip() }}|{{ 'xay'.strip('xy') }}|{{ '\\u3000a\\u00a0' | trim }}|{{ 5 | trim }}|{{ 'aXb'.rstrip('b') }}",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b c '.split() }} {{ 'a b c d'.split(none, 2) }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'a=b=c'.partition('=') }}",
    "{{ 'Hello'.startswith('He') }} {{ 'Hello'.endswith(('x', 'lo')) }} {{ 'banana'.replace('a', 'o') }} {{ 'banana'.replace('a', 'o', 1) }} {{ 'ab'.replace('', '-') }} {{ 'banana'.count('an') }} {{ 'héllo'.find('l') }} {{ 'x'.find('y') }} {{ 'banana'.rfind('a') }} {{ ', '.join(['a', 'b']) }} {{ 'x'.join('abc') }}",
    "{{ 'hello wOrld-foo (bar'.title() }} {{ 'hello wOrld-foo (bar' | title }} {{ 'hELLO é'.capitalize() }} {{ 'éa' | upper }} {{ 'ÉA' | lower }} {{ 'straße' | upper }} {{ 'Ab'.isupper() }} {{ 'AB1'.isupper() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'aé'.isalpha() }} {{ ' '.isspace() }} {{ 'a1'.isalnum() }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }}",
    "{{ '{} {} {{}}'.format(1, 'a') }} {{ '{1}{0}{k}'.format('a', 'b', k=2) }} {{ '%s-%d-%.2f-%05d-%x' | format('a', 7, 1.5, 42, 255) }} {{ '%s %%' % 'x' }} {{ '%s,%s' % (1, none) }}",
    "{{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true) }} {{ [1, 2] | sort(reverse=true) }} {{ [{'a': 2}, {'a': 1}] | sort(attribute='a') }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ {'b': 1, 'a': 2} | dictsort(false, 'key', true) }}",
    "{{ [1, 2, 1, 'a', 'A'] | unique | list }} {{ [1, 2, 3] | first }} {{ [1, 2] | last }} {{ [] | first }}| {{ [1, 2, 3] | reverse | list }} {{ 'abc' | reverse }} {{ [1, 2, 3] | sum }} {{ [1, 3, 2] | max }} {{ [2, 1] | min }} {{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 0) | list }} {{ 'abc' | list }} {{ {'a': 1} | list }} {{ {'a': 1} | items | list }}",
    "{{ [1, 2, 3, 4] | select('odd') | list }} {{ [1, 2, 3] | reject('equalto', 2) | list }} {{ [0, 1, '', 'a'] | select | list }} {{ [{'a': 1}, {'a': 2}, {}] | selectattr('a', 'defined') | map(attribute='a') | list }} {{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }} {{ [{'a': 1}, {}] | map(attribute='a', default='-') | join('+') }} {{ ['a', 'b'] | map('upper') | join }} {{ [{'a': 1}, {'a': 0}] | rejectattr('a') | list }} {{ [[1, 2]] | map('first') | list }} {{ none | map('upper') | list }}",
    "{{ [] | select | length }}", "{% if [] | select %}true{% endif %}{% set g = [1] | select %}{{ g | list }}{{ g | list }}", "{{ [1] | map('upper') | tojson }}",
    "{{ [1, 'é\"\\n<&>', none, true, 1.5, {'b': [], 'a': {}}] | tojson }} {{ {'b': 1, 'a': [1, {'x': 2}]} | tojson(indent=2) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ {1: 2, none: 3, true: 4} | tojson }} {{ [] | tojson(indent=1) }} {{ '\\x01\\x7f\\t\\b\\f' | tojson }}",
    "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, blank=true) }}|{{ 'a\\nb' | indent('> ') }}",
    "{{ 'a\\u2028b\\r\\nc\\rd\\x0be\\x85\\n' | indent(2) }}|{{ 'a\\r' | indent }}|{{ '\\r\\n' | indent(1, true, true) }}|{{ '\\x1c\\u2029' | indent(blank=true) }}|",
    "{{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '1.9' | int }} {{ 1.9 | int }} {{ 'ff' | int(base=16) }} {{ '1.5' | float }} {{ 'x' | float }} {{ 1.55 | round(1) }} {{ 2.5 | round }} {{ 3 | round }} {{ 1.21 | round(1, 'ceil') }} {{ -5 | abs }} {{ true | int }} {{ 12 | string ~ 'x' }} {{ 'a b c' | wordcount }}",
    "{{ '<a href=\"x\">' | e }} {{ '<b>' | safe + '<i>' }} {{ '<b>' | e + '&' }} {{ ('<b>' | safe)[0] ~ '<' }}",
    "{{ 1 is number }} {{ true is number }} {{ true is integer }} {{ 1.5 is float }} {{ 'a' is string }} {{ [] is sequence }} {{ {} is mapping }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ none is none }} {{ 4 is divisibleby 2 }} {{ 3 is odd }} {{ 4 is even }} {{ 1 is eq 1 }} {{ 1 is sameas true }} {{ 'a' is in ['a'] }} {{ 1 is not none }} {{ x is not defined }} {{ 'A' is upper }} {{ true is true }} {{ 1 is true }} {{ 2 is gt 1 }} {{ 'trim' is filter }} {{ range is callable }}",
    "{% macro m(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{% set l = ['x', 'y'] %}{{ m(*l) }} {{ m(1, *[2]) }} {{ m(*[], **{'a': 1, 'b': 2}) }} {{ m(c=9, *l) }} {{ m(*l, c=8) }} {{ m(**{'b': 4, 'a': 5}) }}",
    "{% macro v() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(*'abc') }} {{ v(*range(3), **{'k': 1}) }} {{ v(*{'p': 1, 'q': 2}) }} {{ v(0, x=1, *[2], y=3, **{'z': 4}) }}",
    "{% macro w(a) %}{{ a }}:{{ caller() }}{% endmacro %}{% call w(*['x']) %}in{% endcall %} {% call w(**{'a': 'k'}) %}{{ 1 + 1 }}{% endcall %}",
    "{{ 'a-b-c'.replace(*['-', '+']) }} {{ '%s/%s' | format(*['x', 'y']) }} {{ dict(**{'a': 1}) }} {{ range(*[1, 4]) | list }} {{ 'x' | default(*['d']) }} {{ 5 is divisibleby(*[5]) }} {{ [3, 1] | sort(**{'reverse': true}) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1, 2]) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, **{'a': 2}) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**[1]) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*3) }}",
    "{{ dict(*[], *[]) }}", "{{ dict(**{}, a=1) }}", "{{ dict(**{}, *[]) }}",
    "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ namespace(a=1).a }} {{ [[1, 2], [3]][0][1] }} {{ {'a': {'b': [10, 20]}}.a.b[1] }} {{ {'a': 1}['a'] }} {{ [1, 2].0 }}",
    "{{ [1, 2, 2].count(2) }} {{ [1, 2].index(2) }} {{ (1, 2).index(2) }} {{ [1].copy() }} {{ {'a': 1}.copy() }}", "{{ {'a': 1}.pop('a') }}", "{{ {}.update({'a': 1}) }}", "{% set l = [1] %}{% set _ = l.append(2) %}{{ l }}{{ l.pop() }}{{ l.pop(0) }}{{ l }}",
    "{% generation %}g{{ 1 }}{% set q = 1 %}{% endgeneration %}{{ q }}|{{ 'a' if x is defined else 'b' }}|{{ raise_exception('no é ' ~ 1) }}",
    "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H') }}", "{{ ''.__class__ }}|{{ [].__class__ is defined }}|{{ {}['__class__'] }}", "{{ ''.__class__.__mro__ }}", "{% for i in 5 %}{% endfor %}",
    "{{ [1, 2, 3,] }} {{ {'a': 1,} }} {{ (1, 2,) }} {{ 1, 2 }} {{ 1_000 }} {{ 0x1f }} {{ 1.5e3 }} {{ 'a' if 'b' in 'abc' and not false }} {{ {'a': {'b': {}}} }}",
    "{% if messages %}x{% endif", "{{ 1 + }}", "{% for %}", "{{ 'abc }}", "{% endif %}", "{% if 1 %}", "{{ a b }}", "{% set 1 = 2 %}", "{{ (1 }}", "{{ [1 }}", "{# never ends",
    # what is no list: views of dicts, ranges, generators
    "{% set d = {'a': 1, 'b': [1]} %}{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ {}.keys() }} {{ [d.keys()] }} {{ {'a': d.keys()} }} {{ (d.values(),) }}",
    "{% set d = {'a': 1} %}{{ d.keys()|string }} {{ d.keys() ~ 'a' }} {{ '%s' % d.keys() }} {{ d.keys()[0] }}|{{ d.keys() is sequence }} {{ range(3) is sequence }}",
    "{% set d = {'a': 1, 'b': 2} %}{{ d.keys() == ['a', 'b'] }} {{ range(3) == [0, 1, 2] }} {{ range(3) == range(0, 3) }} {% set k = d.keys() %}{{ k == k }} {{ 'a' in d.keys() }} {{ ('a', 1) in d.items() }}",
    "{% set d = {'a': 1, 'b': 2} %}{{ d.keys()|reverse|list }} {{ d.keys()|sort }} {{ d.items()|first }} {{ d.items()|last }} {{ d.keys()|length }} {{ d.values()|sum }} {{ d.keys()|map('upper')|list }}",
    "{{ {}.keys() + ['a'] }}",
    "{{ {'a': 1}.keys() * 2 }}",
    "{{ {'a': 1}.items()[:1] }}",
    "{{ {'a': 1}.keys()|tojson }}",
    "{{ {'a': 1}.keys().append(1) }}",
    '{{ range(3)|tojson }}',
    '{{ range(3) + [1] }}',
    '{{ range(3) < range(4) }}',
    '{{ range(6)[1:5:2]|list }} {{ range(3)[1] }} {{ range(3)[-1] }} {{ range(3)|length }} {{ range(3)|last }} {{ 2 in range(3) }} {{ range(3)|reverse|list }}',
    "{{ [3, 1]|reverse|first }} {{ [3, 1]|reverse|join('-') }} {{ 'abc'|reverse }} {{ [3, 1]|map('string')|reverse }} {{ ([3, 1]|reverse)[0] }}|{{ [1, 2, 3]|batch(2)|first }} {{ {'a': 1}|items|first }}",
    '{{ [3, 1]|reverse|length }}',
    '{{ [3, 1]|reverse|last }}',
    '{{ [3, 1]|unique|tojson }}',
    "{{ [3, 1]|map('string')|last }}",
    "{% set x = {'a': 1} %}{{ x[:2] }}",
    '{% set x = 3 %}{{ x[:2] }}',
    '{{ namespace()[:1] }}',
    # case
    '{{ \'ΑΣ Σ ΣΑ ΑΣ.\'.lower() }} {{ "ΑΣ\'Σ".lower() }} {{ \'ΑΣ\'|capitalize }} {{ \'aΣb\'.lower() }} {{ \'ΣΣ\'.title() }} {{ \'ΑΣ́\'.lower() }} {{ \'ΑΣ́α\'.lower() }}',
    "{{ 'İI'.lower() }} {{ 'İ'.lower()|length }} {{ 'straße ﬃ ŉ'.upper() }} {{ 'ﬃx ßa'.title() }} {{ 'ǰx'|capitalize }} {{ 'ΐ'.upper() }} {{ 'ᾳ'.upper() }} {{ 'ᾳ'.title() }} {{ 'ﬀ'|title }} {{ 'ẞ ſ İ ﬃ Σς'.casefold() }}",
    # numbers
    '{{ 1.0 // 0.1 }} {{ 6.0 // 0.1 }} {{ 0.3 // 0.1 }} {{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 1e20 // 3 }} {{ -0.0 // 5 }} {{ -5 // 1e300 }} {{ -5 % 1e300 }} {{ 5.5 % -2 }} {{ 1e308 // 1e-10 }}',
    "{{ (0 - 4.0) % 2.0 }} {{ 4.0 % -2.0 }} {{ 0.0 % -3 }} {{ (0 - 1.0) // ('inf'|float) }} {{ (0 - 1.0) % ('inf'|float) }} {{ 1.0 % ('-inf'|float) }} {{ 1.0 // ('-inf'|float) }} {{ 0.0 // -3.0 }}",
    '{{ 2.0 ** 0.5 }} {{ (-2) ** 3 }} {{ (-2.0) ** -1 }} {{ 0.0 ** 0 }} {{ 2 ** -1 }}',
    '{{ 0 ** -1 }}',
    '{{ 1e200 ** 2 }}',
    "{{ '1__0'|int(5) }} {{ '_1'|int(5) }} {{ '1_'|int(5) }} {{ '1_0'|float }} {{ '1._5'|float(9) }} {{ '-0b11'|int(0, 2) }} {{ '0o17'|int(0, 8) }} {{ '-0x1F'|int(0, 16) }} {{ '0b2'|int(9, 2) }} {{ '+0b1'|int(9, 2) }}",
    '{{ zzz|int }}',
    '{{ zzz|float }}',
    # escapes, formats
    r"{{ '\xZZ' }}",
    r"{{ '\u12' }}",
    r"{{ '\U00110000' }}",
    "{{ '%500d|%-450d|' % (1, 2) }}{{ '%.200f' % 1e300 }}{{ '%999f' % -1e308 }}",
    "{{ '%x %05x %-6x| %6x %-06x| %x' % (-5, -5, -5, -5, -5, -9223372036854775807 - 1) }} {{ '%x' % true }}",
    "{{ '%x' % 3.0 }}",
    "{{ '%d' % ('nan'|float) }}",
    "{{ '%d %i' % (-1e18, 1.9) }}",
    "{{ '{0} {}'.format(1, 2) }}",
    "{{ '{} {0}'.format(1, 2) }}",
    "{{ '{0} {1} {0}'.format(1, 2) }} {{ '{} {}'.format(1, 2) }} {{ '{a} {0} {b}'.format(1, a=2, b=3) }} {{ '%.1f' | format(2.25) }} {{ '%f' | format(1) }} {{ '%5.1f|' | format(2) }}",
]


def environment(immutable=True):
    import jinja2, jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

    class generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("same"), [], [], body).set_lineno(line)

        def same(self, caller):
            return caller()

    def refuse(message):
        raise jinja2.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    kind = ImmutableSandboxedEnvironment if immutable else SandboxedEnvironment
    env = kind(trim_blocks=True, lstrip_blocks=True, extensions=[generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(f)
    return env


@functools.lru_cache(maxsize=4)
def compiled(source):
    return environment(".append(" not in source).from_string(source)


def render(source, variables):
    """The text, or None where jinja2 ends with an error."""
    try:
        return compiled(source).render(**copy.deepcopy(variables))
    except Exception:       # the templates' own errors, Python's TypeErrors, RecursionError: all are refusals
        return None


def cases(kwargs):
    for c, tools, add, more in itertools.product(range(len(CONVERSATIONS)), (False, True), (True, False), kwargs):
        yield c, tools, add, more


def variables(c, tools, add, more):
    return dict(messages=CONVERSATIONS[c], tools=TOOLS if tools else None, documents=None, add_generation_prompt=add,
                bos_token="<s>", eos_token="</s>", **more)


def golden(args):
    lines = [{"conversations": CONVERSATIONS, "tools": TOOLS}]
    for path in sorted(FOLDER.glob("*.jinja")):
        lines.append({"file": path.name})
        for c, tools, add, more in cases(KWARGS[:2]):
            lines.append({"c": c, "tools": tools, "add": add, "more": more,
                          "text": render(path.read_text(), variables(c, tools, add, more))})
    lines += [{"source": s, "text": render(s, {})} for s in SNIPPETS]
    (FOLDER / "golden.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    print(f"{len(lines) - 1} lines, {sum(line.get('text') is not None for line in lines)} texts")
    return 0


def compare(args):
    whole = bad = 0
    every = [variables(*c) for c in cases(KWARGS)]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.writelines(json.dumps(v, ensure_ascii=False) + "\n" for v in every)
        f.flush()
        paths = sorted(Path(args.dir).glob("*.jinja"))
        for path in paths:
            out = subprocess.run([args.program, "--render", str(path), f.name], stdout=subprocess.PIPE).stdout.decode()
            got = [json.loads(line) for line in out.split("\n") if line] or [{}] * len(every)
            want = [render(path.read_text(), v) for v in every]
            differ = [i for i, (g, w) in enumerate(zip(got, want)) if g.get("text") != w]
            bad += len(differ)
            whole += not differ
            if differ:
                print(f"{path.name}: {len(differ)} of {len(every)} differ; the first is case {differ[0]}: {got[differ[0]].get('error', '')}")
    print(f"{whole} of {len(paths)} templates give the bytes of jinja2 in all {len(every)} cases; {bad} cases differ")
    return 1 if bad else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["golden", "compare"])
    p.add_argument("dir", nargs="?")
    p.add_argument("--program", default=str(ROOT / "build/release/bin/check_jinja"))
    args = p.parse_args()
    sys.exit({"golden": golden, "compare": compare}[args.command](args))


if __name__ == "__main__":
    main()

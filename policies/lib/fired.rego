# METADATA
# title: Rules that a call fires
# description: >-
#   Evaluates the conditions of some rules on a call, and nothing else. The engine looks up the decision by the answer.
#   The input has the numbers of the rules, and the parts of a call that they read (`reading` of lib/call.rego). Only
#   the shipped module has this entry point.
package tollgate.fired

answer := {"matched": data.tollgate.rules.matching(input.rules)}

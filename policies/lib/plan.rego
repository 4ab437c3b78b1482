# METADATA
# title: Plan mode
# description: >-
#   A principal in plan mode may only read until an owner approves the plan of its run. The verb of the effect counts,
#   not the name of the tool.
package tollgate.plan

import data.tollgate.principal

# The decision on this call depends on the state of the plan.
is_restricted if {
	principal.plans
	not input.effect.verb == "read"
}

refusal := {"id": "plan-mode", "message": message} if {
	is_restricted
	not input.plan == "approved"
}

message := concat("", ["Only reading runs until the plan of this run is approved. Present your plan to the user; an owner approves it with: tollgate plan approve ", input.run])

# The reason in a list, where there is no run.
condition(target) := {"id": "plan-mode", "message": "Only reading runs until the plan is approved."} if {
	principal.plans
	some verb in target.verbs
	verb != "read"
}

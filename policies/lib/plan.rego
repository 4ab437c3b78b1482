# METADATA
# title: Plan mode
# description: >-
#   A principal in plan mode reads only, until an owner has approved the plan of its run. What a call is named does not
#   matter: the verb of its effect does.
package tollgate.plan

import data.tollgate.principal

# The decision on this call depends on where the plan stands.
waits if {
	principal.plans
	not input.effect.verb == "read"
}

refusal := {"id": "plan-mode", "message": message} if {
	waits
	not input.plan == "approved"
}

message := concat("", ["Only reading runs until the plan of this run is approved. Present your plan to the user; an owner approves it with: tollgate plan approve ", input.run])

# Said of a tool in a list, where there is no run.
condition(target) := {"id": "plan-mode", "message": "Only reading runs until the plan is approved."} if {
	principal.plans
	some verb in target.verbs
	verb != "read"
}

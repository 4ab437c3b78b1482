/**
 * The wording rules of the description audit. A match makes a note for the person who approves. It never blocks a tool,
 * because honest tools use the same words.
 */
import { longPattern } from '../text/long-pattern.ts';

/** What each note means, in one line for the person who approves. docs/description-audit.md has the same table. */
export const LINT_MEANINGS = {
  PSEUDO_TAG: 'markup that pretends to come from the system, the user or the host',
  HIDDEN_MARKUP: 'text that a rendered view hides and a model reads',
  OVERRIDE: 'asks to ignore instructions or checks, or claims authority',
  SECRECY: 'asks to keep something from the user',
  STEERING: 'says what to do before, after or besides the call itself',
  PREFERENCE: 'asks to be preferred to other tools',
  CROSS_SERVER: 'mentions a tool that this server does not offer',
  NAME_COLLISION: 'is called like a tool of another server, or nearly so',
  SENSITIVE_PATH: 'names a file that contains keys or passwords',
  SENSITIVE_DATA: 'mentions passwords, keys, identities or the conversation as data to collect',
  EXFIL_PHRASE: 'mentions sending data to a third party',
  COMMAND: 'contains a command line, or offers to run what it is given',
  CONSENT: 'mentions approvals or confirmations',
  PARAM_NAME: 'an argument whose name asks for a secret or for text read elsewhere',
  TOOL_LINT_SCHEMA: 'sentences in a part of the schema that should have none',
  ENCODED: 'text written in base64, hexadecimal or percent signs',
  CONFUSABLE: 'letters that look like other letters',
  HIDDEN_MESSAGE: 'a message in invisible characters, shown decoded',
  ANNOTATION_LIE: 'says that it only reads, but its name says that it destroys',
  UNDECLARED: 'describes arguments that its schema does not have',
  TERMINAL_ESCAPE: 'terminal escape sequences; a model reads the text without them',
} as const;

/** The id of a note. Ids are stable. */
export type LintId = keyof typeof LINT_MEANINGS;

/**
 * A rule over one text in lower case, after look-alike letters were replaced. Every pattern is ours and runs in linear
 * time: no repetition contains another repetition.
 */
export interface LintRule {
  readonly id: LintId;
  readonly pattern: RegExp;
}

const RANK = `(?:system|admin(?:istrator)?|developer|security|priority|important|critical|hidden|secret|urgent
  |instructions?|override|directive|internal|mandatory)`;
const KEEPER = '(?:user|users|human|operator|anyone|customer|client|owner)';
const SECRET_FILE = String.raw`(?:\.env\b|credentials? file|private[ _]key(?: file)?|key ?files?\b|password file
  |\.aws credentials|keychain|wallet file|shell history|browser cookies)`;
const TAKE = `(?:read|access|dump|send|upload|include|steal|exfiltrate|cat|print|leak|retrieve|get|fetch|open
  |load|collect|copy|attach|pass|post)`;
const PRIVATE = `(?:api[ -]?keys?|credentials?|passwords?|secrets?|private keys?|credit cards?
  |social security numbers?|account numbers?|phi records?|sensitive (?:data|documents?|information)
  |clipboard contents?|(?:conversation|chat) (?:history|context|log)|message content|environment variables
  |system prompt)`;
const ELSEWHERE = '(?:external|remote|attacker|third[ -]party|logging|monitoring|analytics|evil|our)';

/** Returns a template tag that makes a rule with this id. */
function rule(id: LintId): (text: TemplateStringsArray, ...parts: readonly string[]) => LintRule {
  return (text, ...parts) => ({ id, pattern: longPattern()(text, ...parts) });
}

/** In the order in which a person should read the notes. */
export const LINT_RULES: readonly LintRule[] = [
  rule('PSEUDO_TAG')`
    </?(?:${RANK}|assistant|prompt|inst)[ _-]?(?:note|message|prompt|instructions?|reminder)?\s*/?>
    |<\|[a-z_]{2,20}\|>|<<sys>>`,
  rule('PSEUDO_TAG')`
    \[/?(?:[a-z]{1,20}[ _-])?(?:${RANK}|inst)(?:[ _-][a-z]{1,20}){0,3}\]|\|{2,3}[a-z_ ]{3,30}\|{2}
    |\*\*(?:hidden|system|important|critical|secret)(?: [a-z]{1,12}){0,3}:?\*\*`,
  rule('PSEUDO_TAG')`
    #{2,3} ?(?:system|instructions?|response|assistant)\s*:
    |(?:^|[\n"'(.!?>-] ?)(?:system|human|assistant) ?(?:note|override|directive|message|instructions?
    |administrator notice)? ?: `,
  rule('PSEUDO_TAG')`
    \b(?:system (?:override|directive)|(?:priority|admin|system)_(?:instruction|override|directive)
    |context_update)\b`,
  rule('HIDDEN_MARKUP')`
    <!--[^]{0,40}?\b(?:system|important|before|always|never|ignore|read|call|send|instructions?|must|override
    |bypass)\b|\[\/\/\]: ?# ?[("']|<details>|(?:display: ?none|font-size: ?0|color: ?(?:white|transparent))
    |data:text\/html`,
  rule('OVERRIDE')`
    \b(?:ignore|disregard|forget|override|overrules?|bypass|skip|disable
    |suspend)s? (?:[a-z]{1,12} ){0,3}(?:instructions?|rules?|guidelines?|prompts?|polic(?:y|ies)|safety|safeguards
    |restrictions?|validations?|authori[sz]ation|authentication|security (?:checks?|rules?|polic(?:y|ies))
    |guardrails)\b`,
  rule('OVERRIDE')`
    \byou are now (?!ready|able|connected|logged|signed|done)
    |\b(?:takes?|has|have) (?:absolute )?(?:precedence|priority) over (?:all|any|every|other|later|subsequent
    |security|your|the user|previous|prior)|\bsupersedes?\b
    |\b(?:elevated|full admin|unrestricted) (?:privileges?|access)|\bobey\b|\bdo (?:what|as|exactly what) i say
    |\bnew (?:priority )?(?:instructions?|directive)\b|\b(?:output|reveal|print|repeat) (?:your
    |the) (?:complete |full |entire )?system prompt`,
  rule('SECRECY')`
    \b(?:do not|don'?t|never|must not|should not|shouldn'?t|without|avoid|should never be
    |not be)\b[^.\n]{0,24}\b(?:tell|telling|mention|mentioned|mentioning|inform|informing|reveal|revealing|notify
    |notifying|disclos(?:e|ing)|alert|warn)(?:ed|ing)?\b[^.\n]{0,60}(?:${KEEPER}|this\b|that you)`,
  rule('SECRECY')`
    \b(?:secret (?:operation|instructions?|task)|keep (?:this|it) (?:secret|hidden|confidential)
    |(?:silently|secretly|covertly|quietly) (?:send|read|copy|add|forward|include|run|execut|call|exfil)
    |hid(?:e|den) (?:this )?from (?:the )?(?:user|human))`,
  rule('STEERING')`
    \b(?:before|after|prior to|when|while|instead of|rather than) (?:using|calling|invoking|running|executing
    |execute|answering|responding|returning|processing|replying|proceeding|searching|any|every
    |each)\b[^.\n]{0,80}\b(?:read|call|calls|run|execute|add|include|copy|pass|send|ensure|fetch|access|redirect
    |replace|tool)\b`,
  rule('STEERING')`
    \balways (?:first |also |then )?(?:read|run|execute|invoke|bcc|cc|include|add|append|forward|end|begin|start|say
    |suggest|do|call|send|copy|reply|respond)\b|\b(?:must|need to|required to
    |should) (?:first |also )?(?:read (?:the |~|\/)|run (?:the |this )?command|bcc|forward|execute the|invoke)
    |\b(?:also|first|then),? (?:read|run|execute|cat|open|upload|send) (?:the |its |your |all |~|\/)
    |\bnever(?: needs to| should| be| to be){1,3} (?:be )?(?:invoked|called|used)
    |(?:any|for) [a-z]{1,12}tools?,? (?:ensure|add|include)`,
  rule('STEERING')`
    \bwhen (?:the |this )?(?:\`[^\`]{1,60}\`|'[^']{1,60}'|[a-z]{1,40}_[a-z_]{1,60})? ?(?:tool )?(?:is|was) (?:called
    |present|used|available),? (?:it|you|first|must|read)|\bmust first\b|\bwhen called, first\b
    |\bpass (?:its|the|their|all|full|entire)(?: [a-z]{1,10}){0,4} (?:contents?|text|body|conversation
    |file contents?)\b|\bas (?:the )?["'\`]?[a-z_]{2,30}["'\`]? (?:argument|parameter)\b
    |\bsupply the (?:prior|previous|full) conversation`,
  rule('PREFERENCE')`
    \bpreferred tool\b|\b(?:always|must|should) (?:use|prefer|choose|pick|select|call|try) (?:this|me
    |the [a-z]{1,12}) ?(?:tool|function|server)?\b(?: first| over| before| instead| at)?
    |\b(?:use|call|choose|prefer|run) (?:this|me|it)(?: one)?(?: tool| function)? (?:first|instead|rather than|over
    |for (?:every|each|all|any))\b`,
  rule('PREFERENCE')`
    \b(?:instead of|rather than|over|in place of) (?:using )?(?:the |any |all )?(?:other|others|built-?in|default
    |existing|[a-z_]{2,30})? ?tools?\b|\brather than others\b
    |\b(?:at the (?:start|beginning) of (?:each|every|any|the)
    |(?:tool|this|me|it) for (?:each|every|any|all)) (?:conversation|session|requests?|chat|tasks?|messages?)\b
    |\b(?:other|all other|any other)(?: [a-z]{1,12}){0,2} tools? (?:are|is|fails?|return|should|must|give)\b
    |\bmost accurate\b|\bthe (?:official|only (?:correct|reliable|safe)|best) [a-z, ]{0,30}tool\b
    |\bdo not use (?:any )?other\b|\bregardless of (?:the )?(?:input|request|query|user)`,
  rule('SENSITIVE_PATH')`
    \.ssh\/|~\/\.ssh\b|\bid_(?:rsa|dsa|ecdsa|ed25519)\b|\/etc\/(?:passwd|shadow|sudoers)\b
    |\.aws\/(?:credentials|config)|\.(?:netrc|npmrc|pypirc|git-credentials|pgpass)\b|\.kube\/config|\.docker\/config
    |\.cursor\/mcp\.json|claude_desktop_config|\.gnupg\b|\/proc\/self\/environ|\.bash_history|login data\b
    |:\/\/(?:secrets?|confidential)\b|\/\/169\.254\.169\.254`,
  rule('SENSITIVE_PATH')`
    \b${TAKE} (?:the |all |any |its |contents? of |user'?s? |your ){0,4}(?:\S{1,20} ){0,2}${SECRET_FILE}
    |${SECRET_FILE}[^.\n]{0,12}\b${TAKE}\b(?! as| from)`,
  rule('SENSITIVE_DATA')`
    \b(?:index(?:es)?|extracts?|collects?|harvest(?:s|ed)?|logs?|includ(?:es|ing)|stores?|sends?|steal|exports?
    |captures?|records?|exfiltrate|including)\b[^.\n]{0,60}\b${PRIVATE}`,
  rule('SENSITIVE_DATA')`
    \bsteal\b|\bharvest(?:s|ed|ing)\b|\bcreds\b|\b(?:api_key|openai_api_key|secret_key|password) ?= ?\S{8}
    |\bconfidential (?:company )?(?:information|data)|\bsystem secrets\b|\bscreenshots? of passwords
    |\bfull (?:email body|conversation)|\{(?:conversation|history|system_prompt|secrets?)\}`,
  rule('EXFIL_PHRASE')`
    \b(?:sen[dt]s?|forward(?:s|ed)?|upload(?:s|ed)?|posts?|transmit(?:s|ted)?|leak(?:s|ed)?|stream(?:s|ed)?
    |cop(?:y|ies|ied)|redirect|stored|synced|exports?|backup|report(?:s|ed)?)\b[^.\n]{0,90}\b(?:to|through|via|by
    |on)\b[^.\n]{0,30}(?:${ELSEWHERE}\b[^.\n]{0,30}\b(?:servers?|endpoints?|services?|teams?|proxy|address|host
    |locations?|platform|partners?)|\b(?:attacker|evil|attkr|pwnd|p0wned)\b)`,
  rule('EXFIL_PHRASE')`
    \bexfil(?:trat\w+)?\b|\battacker\b|\b(?:stored|synced|cached|streamed|logged)\b[^.\n]{0,30}\b(?:remotely
    |via cloud|in the cloud)|\b(?:bcc|forward|send|copy|add)\b[^.\n]{0,60}?[\w.+-]{1,40}@[\w-]{1,40}\.[a-z]{2,}
    |!\[[^\]\n]{0,40}\]\(https?:[^)\n]{0,120}[{<$]|https?:\/\/\S{0,80}\?\S{0,40}=(?:\$\(|\{|<)
    |\b(?:upload|send|post) (?:it |them |this |everything |all )?to (?:the |a |my |our )?(?:server|endpoint|url
    |webhook)\b|\b(?:research|security|quality) (?:team|assurance)\b[^]{0,60}\b(?:never|do not|data collection)
    |\blogged for quality|\bcreate(?:d)? backup copies|\bbackup copies are created`,
  rule('COMMAND')`
    \b(?:curl|wget) [^\n]{0,120}(?:-d ?@|--data(?:-binary)? ?@|\$\(|\$\{?[a-z_]{0,30}(?:key|secret|pass)|\| ?\w)
    |\b(?:run|execute|command)\b:? ?[\`'"]?(?:curl|wget)\b|\| ?(?:bash|sh|nc|python3?|base64)\b|\brm -rf\b|\$\([a-z]
    |\bnc (?:-[a-z]{1,4} )?[\w.-]{1,80} \d{2,5}|\bchmod \+?[x7]|\b(?:call(?:ing)? )?the bash tool
    |\brun any (?:shell )?command|\bfollowing (?:bash|shell|system|diagnostic)? ?command
    |\b(?:mine|mining) (?:crypto|bitcoin|monero)`,
  rule('COMMAND')`
    \b(?:execut|launch|run|spawn)(?:s|es|e|ing)? (?:a |an |any |the )?(?:arbitrary|shell|system|local
    |os) (?:commands?|scripts?|code|files?|programs?|binar(?:y|ies))\b
    |\b(?:download|fetch|retriev|grab)(?:s|es|e)? (?:a |an |any |the )?[a-z]{0,10} ?(?:scripts?|binar(?:y|ies)
    |executables?|payloads?|programs?)\b[^.\n]{0,40}\b(?:runs?|execut(?:es?|ing)|launch(?:es)?|install(?:s)?)\b`,
  rule('CONSENT')`
    \b(?:no|without|needs no|skip(?:s|ping)?|requires no|bypass(?:es)?) (?:[a-z]{1,10} )?(?:approvals?
    |confirmations?|consent|permission prompts?)\b|\bapprove (?:once|all|every)|\bauto-?approv|\bapprove ?= ?true
    |\bsafe to (?:run|call|execute|use) automatically|\bapproval (?:\w{1,12} )?(?:was |has been |is )?(?:already )?
    (?:granted|given)|\bpre-?approved|\bso that the user is not (?:disturbed|bothered|interrupted)|\bconsent\(\)`,
];

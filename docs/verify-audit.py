#!/usr/bin/env python3
"""Verifies audit records of Tollgate without Tollgate: needs Python 3.8 and the program openssl (3.0 or later).

  python3 verify-audit.py PROOF.json       a proof that `tollgate audit prove` wrote
  python3 verify-audit.py FOLDER           a copy of the log: chain files and tree.db
  python3 verify-audit.py BUNDLE           a folder or .tar.gz with records.jsonl and proofs.json
  --key KEY          the verifier key of the log (`tollgate audit key`), received another way than the data
  --checkpoint FILE  a checkpoint that was kept elsewhere; may be repeated (only with FOLDER)
  --archive FOLDER   an archive of the log; may be repeated (only with FOLDER)

Exit code 0: everything is proven. 3: something was changed or is missing. 8: something is not signed.
"""
import argparse, base64, gzip, hashlib, json, os, re, shutil, sqlite3, subprocess, sys, tarfile, tempfile, zlib

class Fault(Exception):
    """Something was changed, or is missing."""

def leaf_hash(line):
    return hashlib.sha256(b"\0" + line).digest()

def node_hash(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()

def root_of_path(leaf, index, size, path):
    """RFC 6962, section 2.1.1. The path begins with the sibling of the leaf."""
    if not 0 <= index < size or (size == 1) != (not path):
        raise Fault("a path does not fit the number of its record")
    if size == 1:
        return leaf
    left = 1 << (size - 1).bit_length() - 1
    if index < left:
        return node_hash(root_of_path(leaf, index, left, path[:-1]), path[-1])
    return node_hash(path[-1], root_of_path(leaf, index - left, size - left, path[:-1]))

def append(nodes, leaf):
    """Appends a leaf to a tree that is known by its complete subtrees: (number of leaves, root)."""
    count = 1
    while nodes and nodes[-1][0] == count:
        leaf, count = node_hash(nodes.pop()[1], leaf), count * 2
    nodes.append((count, leaf))

def root_of(nodes):
    root = nodes[-1][1]
    for _, node in reversed(nodes[:-1]):
        root = node_hash(node, root)
    return root

def read_key(text):
    match = re.fullmatch(r"([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)", text.strip())
    raw = base64.b64decode(match.group(3)) if match else b""
    if len(raw) != 33 or raw[0] != 1:
        raise Fault("this is no verifier key of a log")
    name = match.group(1)
    return name, hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4], raw[1:]

def read_note(note):
    match = re.match(r"([^\n]+)\n(0|[1-9][0-9]*)\n([A-Za-z0-9+/]{43}=)\n(?:[^\n]+\n)*\n(?=\u2014 )", note)
    if not match:
        raise Fault("this is no checkpoint")
    return match.group(1), int(match.group(2)), base64.b64decode(match.group(3)), match.end()

def verify_note(note, key):
    """Returns origin, size and root of a checkpoint that the log with this key signed."""
    origin, size, root, end = read_note(note)
    name, key_id, public = read_key(key)
    if name != origin:
        raise Fault(f"the checkpoint is of {origin}, and the key is of {name}")
    for line in note[end:].splitlines():
        match = re.fullmatch("\u2014 (\\S+) ([A-Za-z0-9+/=]+)", line)
        signature = base64.b64decode(match.group(2)) if match and match.group(1) == name else b""
        if signature[:4] == key_id and ed25519(public, note[: end - 1].encode(), signature[4:]):
            return origin, size, root
    raise Fault("the checkpoint is not signed with this key")

def ed25519(public, message, signature):
    with tempfile.TemporaryDirectory() as folder:
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-rawin"]
        parts = {"-inkey": bytes.fromhex("302a300506032b6570032100") + public, "-in": message, "-sigfile": signature}
        for option, data in parts.items():
            command += [option, os.path.join(folder, option)]
            with open(command[-1], "wb") as file:
                file.write(data)
        return subprocess.run(command, capture_output=True).returncode == 0

def verify_proof(proof, lines, key):
    """Verifies records against the checkpoint of a proof. Returns the number of those that are not signed."""
    records = proof["records"]
    if lines is None:
        lines = [record and record["line"].encode() for record in records]
    if len(lines) != len(records):
        raise Fault(f"there are {len(lines)} records and {len(records)} proofs")
    if "checkpoint" not in proof:
        print("nothing is signed")
        return len(records)
    origin, size, root = verify_note(proof["checkpoint"], key or proof.get("key", ""))
    for at, (line, record) in enumerate(zip(lines, records)):
        path = [base64.b64decode(one, validate=True) for one in record["path"]] if record else []
        if record and root_of_path(leaf_hash(line), record["leaf"], size, path) != root:
            raise Fault(f"record {at + 1} is not what was signed")
    print(f"{len(records) - records.count(None)} of {len(records)} records are in the log {origin} of {size} records")
    return records.count(None)

def verify_log(folder, key, kept, archives):
    """Verifies a copy of the log. Returns the number of records that are not signed or not there."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("tree.db", "tree.db-wal"):
            if os.path.exists(os.path.join(folder, name)):
                shutil.copy(os.path.join(folder, name), scratch)
        tree = sqlite3.connect(os.path.join(scratch, "tree.db"))
        notes = dict(tree.execute("SELECT size, note FROM checkpoint ORDER BY size"))
        spans = tree.execute("SELECT leaf, count, file, offset, end FROM span ORDER BY leaf").fetchall()
        tiles = {n: base64.b64decode(text) for n, text in tree.execute("SELECT n, hashes FROM tile WHERE level = 0")}
        tree.close()
    origin, size, _ = verify_note(notes.get(max(notes, default=0), ""), key)
    if size != max(notes):
        raise Fault("the last checkpoint has another size")
    roots = {count: read_note(note)[2] for count, note in notes.items()}
    for name, note in kept:
        other, count, value = verify_note(note, key)
        if count > size:
            raise Fault(f"rolled back: {name} has {count} records, and the log {size}")
        if roots.setdefault(count, value) != value:
            raise Fault(f"forked: the log of {name} had other records")
    nodes, grown, elsewhere, ends = [], 0, 0, {}
    for leaf, count, file, offset, end in spans:
        if leaf >= size:
            break
        # Files of an archive are compressed.
        places = [os.path.join(place, name) for place in [folder, *archives] for name in (file, file + ".gz")]
        found = [place for place in places if os.path.basename(file) == file and os.path.exists(place)]
        if leaf != grown:
            raise Fault("the places of records contradict each other")
        if found:
            with (gzip.open if found[0].endswith(".gz") else open)(found[0], "rb") as data:
                data.seek(offset)
                lines = data.read(end - offset).split(b"\n")
            if len(lines) != count + 1 or lines[-1] != b"":
                raise Fault(f"{file}: records are missing, or there are more than were signed")
            hashes = [leaf_hash(line) for line in lines[:-1]]
            if offset != ends.get(file, 0):
                raise Fault(f"{file}: there is something between signed records")
            ends[file] = end
        else:
            elsewhere += count
            hashes = [tiles.get(i // 256, b"")[i % 256 * 32 :][:32] for i in range(leaf, leaf + count)]
            print(f"{file} is not here: {count} records were not read", file=sys.stderr)
        for value in hashes:
            append(nodes, value)
            grown += 1
            if grown in roots and root_of(nodes) != roots[grown]:
                raise Fault(f"{file}: the records up to number {grown} are not those that were signed")
    if grown != size:
        raise Fault("records are missing at the end of the tree")
    unsigned = 0
    for file in os.listdir(folder):
        if re.fullmatch(r"\d{8}T\d{9}Z-\d+(\.\d+)?\.jsonl", file):
            with open(os.path.join(folder, file), "rb") as data:
                data.seek(ends.get(file, 0))
                unsigned += data.read().count(b"\n")
    print(f"{size - elsewhere} of {size} records of {origin} are those that were signed; {unsigned} are not signed")
    return unsigned + elsewhere

def read_bundle(path):
    """Returns the records and the proofs of a bundle. Nothing is extracted."""
    names = ("records.jsonl", "proofs.json")
    if os.path.isdir(path):
        return [open(os.path.join(path, name), "rb").read() for name in names]
    with tarfile.open(path) as bundle:
        found = {os.path.basename(one.name): one for one in bundle if one.isfile() and one.size < 1 << 32}
        return [bundle.extractfile(found[name]).read() for name in names]

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place")
    parser.add_argument("--key")
    parser.add_argument("--checkpoint", action="append", default=[])
    parser.add_argument("--archive", action="append", default=[])
    options = parser.parse_args()
    if os.path.exists(os.path.join(options.place, "tree.db")):
        if options.key is None:
            raise Fault("a copy of the log is verified with --key KEY (tollgate audit key)")
        kept = [(file, open(file, encoding="utf-8").read()) for file in options.checkpoint]
        return verify_log(options.place, options.key, kept, options.archive)
    if options.key is None:
        print("The key is the one in the proof. With --key you know whose it is.", file=sys.stderr)
    if options.place.endswith(".json"):
        return verify_proof(json.loads(open(options.place, "rb").read()), None, options.key)
    records, proofs = read_bundle(options.place)
    return verify_proof(json.loads(proofs), records.split(b"\n")[:-1], options.key)

UNREADABLE = (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError)

if __name__ == "__main__":
    try:
        sys.exit(8 if main() > 0 else 0)
    except (Fault, *UNREADABLE, sqlite3.Error, tarfile.TarError, zlib.error) as fault:
        print(f"NOT PROVEN: {fault}", file=sys.stderr)
        sys.exit(3)

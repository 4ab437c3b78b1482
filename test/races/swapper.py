"""Swaps links, files and folders below the working folder as fast as possible until it is killed.

The first argument is the seed.
"""
import ctypes, os, random, shutil, sys

RENAME_EXCHANGE = 2
AT_FDCWD = -100
libc = ctypes.CDLL(None, use_errno=True)
dice = random.Random(int(sys.argv[1]))

def exchange(one, other):
    """renameat2(2): both names change hands in one step."""
    libc.renameat2(AT_FDCWD, one.encode(), AT_FDCWD, other.encode(), RENAME_EXCHANGE)

def remove(name):
    if os.path.isdir(name) and not os.path.islink(name):
        shutil.rmtree(name, ignore_errors=True)
    elif os.path.lexists(name):
        os.unlink(name)

def place(name, make):
    """Makes something beside a name and renames it over the name."""
    made = name + '.new'
    remove(made)
    make(made)
    if os.path.isdir(name) and not os.path.islink(name) or os.path.isdir(made) and not os.path.islink(made):
        exchange(made, name) if os.path.lexists(name) else os.rename(made, name)
    else:
        os.rename(made, name)

def plain(name):
    with open(name, 'w') as file:
        file.write('open\n')

def folder(name):
    os.mkdir(name)
    plain(name + '/f')

LINKS = ['../.env', '../rules.yaml', 'plain.txt', '../closed', '../closed/data.txt', '../.git/hooks', '../free', 'nowhere',
         '../closed/fresh', '../../outside/secret', '../../outside']
HARD = ['../.env', '../rules.yaml', '../closed/data.txt', 'plain.txt']

def step():
    name = dice.choice(['a', 'b', 'c', 'd', 'e'])
    kind = dice.randrange(7)
    if kind <= 2:
        place(name, lambda made: os.symlink(dice.choice(LINKS), made))
    elif kind == 3:
        place(name, plain)
    elif kind == 4:
        place(name, folder)
    elif kind == 5:
        place(name, lambda made: os.link(dice.choice(HARD), made))
    else:
        exchange(name, dice.choice(['a', 'b', 'c', 'd', 'e']))

print('swapping', flush=True)
while True:
    try:
        step()
    except OSError:
        pass

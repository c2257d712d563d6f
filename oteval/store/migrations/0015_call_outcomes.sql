-- Whether a call failed is read from more evidence than before: everything is reconstructed anew.
DELETE FROM progress WHERE stage = 'reconstruct';
